"""The Factormer for every rank: symmetries, scale, batches, and what a layer leaves as it is."""

import json
from dataclasses import asdict

import pytest
import torch

from factormer.data.factors import Factors
from factormer.nn.anyfactormer import AnyFactormer, AnyFactormerConfig, spread
from factormer.nn.zoo import load_any_factormer, models


def network(seed: int = 0) -> AnyFactormer:
    """All weights random."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AnyFactormer(AnyFactormerConfig(width=8, n_layers=4)).double()
        for weight in model.parameters():
            torch.nn.init.normal_(weight, std=0.3)
    return model.requires_grad_(False)


def case(m=14, n=11, r=4, batch=(), seed=1) -> tuple[Factors, torch.Tensor]:
    """Principal coordinates of a matrix with nonnegative factors, and a rotation."""
    rng = torch.Generator().manual_seed(seed)
    W, H = (torch.rand(*batch, k, r, generator=rng).double() for k in (m, n))
    U, S, Zt = torch.linalg.svd(W @ H.mT)
    root = S[..., None, :r].sqrt()
    chance = torch.randn(*batch, r, r, generator=rng).double()
    return Factors(U[..., :r] * root, Zt.mT[..., :r] * root), torch.linalg.qr(chance).Q


def test_layers_leave_the_product_as_it_is():
    x, R = case()
    y = network()(x, R)
    torch.testing.assert_close(y.W @ y.H.mT, x.W @ x.H.mT)


def test_permuted_rows_columns_and_components_permute_the_answer():
    x, R = case()
    rows, columns, components = torch.randperm(14), torch.randperm(11), torch.randperm(4)
    y = network()(x, R)
    z = network()(Factors(x.W[rows], x.H[columns]), R[:, components])
    torch.testing.assert_close(z.W, y.W[rows][:, components])
    torch.testing.assert_close(z.H, y.H[columns][:, components])


def test_principal_directions_have_no_order_and_no_sign():
    x, R = case()
    order, sign = torch.tensor([2, 0, 3, 1]), torch.tensor([1.0, -1, -1, 1]).double()
    turned = Factors(*(F[:, order] * sign for F in x))
    y, z = network()(x, R), network()(turned, (R * sign[order.argsort()][:, None])[order])
    torch.testing.assert_close(z.W, y.W)


def test_scale_passes_through():
    x, R = case()
    y, z = network()(x, R), network()(Factors(*(1e3 * F for F in x)), R)
    torch.testing.assert_close(z.W, 1e3 * y.W)


def test_transposed_is_swapped():
    x, R = case()
    y, z = network()(x, R), network()(x.swap(), R)
    torch.testing.assert_close(z.swap().W, y.W)


def test_a_batch_is_its_members():
    x, R = case(batch=(3,))
    y = network()(x, R)
    for k in range(3):
        one = network()(Factors(x.W[k], x.H[k]), R[k])
        torch.testing.assert_close(one.H, y.H[k])


@pytest.mark.parametrize("what", ["zero", "rank 1", "one component"])
def test_answers_are_finite(what):
    r = 1 if what == "one component" else 4
    x, R = case(r=r)
    if what == "zero":
        x = Factors(*(torch.zeros_like(F) for F in x))
    if what == "rank 1":
        x = Factors(*(F * (torch.arange(r) == 0) for F in x))
    y = network()(x, spread(x, R))
    assert all(F.isfinite().all() for F in y)


def test_nonnegative_factors_stay():
    """With nothing learned; levels above zero would go on turning."""
    x, _ = case()
    plain, y = AnyFactormer(AnyFactormerConfig()).double(), Factors(x.W.abs(), x.H.abs())
    torch.testing.assert_close(plain(y, torch.eye(4).double()).W, y.W)


def test_plain_layers_lift_negative_entries():
    x, R = case(m=40, n=30)
    R = spread(x, R)
    model = AnyFactormer(AnyFactormerConfig()).double().requires_grad_(False)

    def negative(y: Factors) -> float:
        return float(torch.cat(list(y)).clamp(max=0).square().sum())

    assert negative(model(x, R, n_layers=20)) < 0.2 * negative(Factors(x.W @ R, x.H @ R))


def test_spread_gives_all_components_one_mean():
    x, R = case()
    turned = spread(x, R)
    torch.testing.assert_close(turned @ turned.mT, torch.eye(4).double())
    means = ((x.W.sum(dim=0) + x.H.sum(dim=0)) @ turned).abs()
    torch.testing.assert_close(means, means.mean().expand(4))


def test_options_are_checked():
    with pytest.raises(ValueError, match="kind is 'x'"):
        AnyFactormerConfig(kind="x")
    with pytest.raises(ValueError, match="width is 0"):
        AnyFactormerConfig(width=0)


def test_shipped_network_loads_with_a_card_of_its_own(golden):
    """A fixed point and rotation in float64; the network is stored in float32."""
    model, card = load_any_factormer("any-rank-init"), models()["any-rank-init"]
    assert (card.name, card.config, card.use) == ("any-rank-init", model.config, "init")
    assert not any(p.requires_grad for p in model.parameters())
    assert all(p.isfinite().all() for p in model.parameters())
    assert str(card).startswith(f"any-rank-init (version {card.version}): init, any rank")
    assert card.training["finished"]
    assert card.figures
    json.dumps(asdict(card))
    t = torch.linspace(0, 1, 9, dtype=torch.float64)[:, None]
    waves = torch.cat([1 + 0.1 * t, (3 * t).cos(), (7 * t).sin()], dim=1)
    x = Factors(waves[:5], waves[4:])
    found = model.double()(x, spread(x, torch.eye(3).double()))
    golden("model-any-rank-init", rtol=1e-6, W=found.W, H=found.H)
