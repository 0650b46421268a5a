"""Other losses and weights: values, descent, bits, ends, and what is refused."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from tests.core.lanes import Found, core, given, one, planted, run, under

BETAS = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0]
V = planted(70, 45, 5) + 0.05
WEIGHTS = np.random.default_rng(0).random(V.shape)
WEIGHTS[np.random.default_rng(1).random(V.shape) < 0.4] = 0
COUNTS = np.random.default_rng(2).poisson(0.4 * planted(70, 45, 5)).astype(float)


def loss(beta: float, *, starts: int = 1, fits: int = 0, mends: int = 0, roots: bool = False):
    """Return the rules of Newton steps as the core takes them."""
    return (beta, 6, 1.1, starts, fits, mends, roots)


def sparse_with_weights() -> Any:
    """Return the known entries of V alone, with their weights."""
    halves = [sp.csr_matrix(WEIGHTS), sp.csc_matrix(WEIGHTS)]
    known = sp.csr_matrix(np.where(WEIGHTS > 0, V, 0))
    return (*given(known), *(half.data for half in halves))


KINDS: dict[str, tuple[Any, Any, Any]] = {  # as the core takes it, and its entries with weights
    "dense": (V, V, np.ones_like(V)),
    "by columns": (np.asfortranarray(V), V, np.ones_like(V)),
    "weighted": (("weighted", V, WEIGHTS), V, WEIGHTS),
    "known entries": (sparse_with_weights(), V, WEIGHTS),
    "sparse": (sp.csr_matrix(COUNTS), COUNTS, np.ones_like(V)),
}
CASES = [(kind, beta) for kind in KINDS for beta in BETAS if kind != "sparse" or beta > 0]
each = pytest.mark.parametrize(("kind", "beta"), CASES)


def divergence(beta: float, v: np.ndarray, w: np.ndarray, y: np.ndarray) -> float:
    """Return Σ ω d(v, y)."""
    y = np.maximum(y, 1e-200)
    with np.errstate(divide="ignore", invalid="ignore"):
        if beta == 1:
            d = np.where(v > 0, v * np.log(v / y), 0) - v + y
        elif beta == 0:
            d = v / y - np.log(v / y) - 1
        else:
            d = v**beta + (beta - 1) * y**beta - beta * v * y ** (beta - 1)
            d /= beta * (beta - 1)
    return float(np.where(w > 0, w * d, 0).sum())


def objective(kind: str, beta: float, found: Found, l1: float = 0.0, l2: float = 0.0) -> float:
    """Return the objective, formed entry by entry."""
    _, v, w = KINDS[kind]
    penalty = l1 * (found.W.sum() + found.H.sum())
    penalty += l2 / 2 * ((found.W**2).sum() + (found.H**2).sum())
    return divergence(beta, v, w, found.W @ found.H.T) + penalty


def of(kind: str, found: Found) -> float:
    """Return the objective that an error stands for."""
    return found.error**2 * (KINDS[kind][2] > 0).sum() / 2


@each
def test_errors_are_those_of_the_factors_and_never_rise(kind, beta):
    rules: dict[str, Any] = {"l1": (0.01, 0.01), "l2": (0.02, 0.02), "scale": "none"}
    found = one(KINDS[kind][0], 4, loss=loss(beta), max_iter=40, finish="none", tol=0.0, **rules)
    assert of(kind, found) == pytest.approx(objective(kind, beta, found, 0.01, 0.02), rel=1e-9)
    assert (np.diff(found.errors) <= 1e-12 * found.errors[:-1]).all()
    assert found.errors[-1] < 0.9 * found.errors[0]
    finer = one(KINDS[kind][0], 4, loss=loss(beta), max_iter=40, finish="exact", tol=0.0, **rules)
    assert finer.error <= found.error * (1 + 1e-12)


@each
def test_bits_depend_on_no_thread_and_no_neighbour(kind, beta):
    data, rules = KINDS[kind][0], {"loss": loss(beta, starts=2, fits=5), "max_iter": 12}
    for isa in core.isas():
        with under(isa):
            alone = one(data, 4, 3, threads=1, **rules)
            assert one(data, 4, 3, threads=3, **rules).bits() == alone.bits()
            together = run([data], [0] * 3, [2, 4, 5], [1, 3, 7], threads=2, **rules)
            assert together[1].bits() == alone.bits()


@each
def test_instruction_sets_end_alike(kind, beta):
    start = tuple(np.random.default_rng(0).random((k, 4)) + 0.1 for k in V.shape)
    ends = []
    for isa in core.isas():
        with under(isa):
            ends.append(one(KINDS[kind][0], 4, start=start, loss=loss(beta), max_iter=8, tol=0.0))
    for end in ends[1:]:
        assert end.error == pytest.approx(ends[0].error, rel=1e-6)


@pytest.mark.parametrize("beta", BETAS)
def test_the_unit_of_v_changes_nothing_but_the_unit_of_the_answer(beta):
    plain = one(V, 3, loss=loss(beta, fits=5), max_iter=15, tol=0.0)
    for unit in (2.0**-60, 2.0**40):
        found = one(unit * V, 3, loss=loss(beta, fits=5), max_iter=15, tol=0.0)
        assert found.error == pytest.approx(unit ** (beta / 2) * plain.error, rel=1e-6)
        np.testing.assert_allclose(found.W @ found.H.T, unit * plain.W @ plain.H.T, rtol=1e-4)


def test_fixed_components_stay_and_known_factors_are_iterated_on_alone():
    W, H = (np.random.default_rng(0).random((k, 4)) + 0.1 for k in V.shape)
    some = one(V, 4, start=(W, H), fixed=([1], [0, 2]), loss=loss(1.0), max_iter=9, scale="none")
    np.testing.assert_array_equal(some.W[:, 1], W[:, 1])
    np.testing.assert_array_equal(some.H[:, [0, 2]], H[:, [0, 2]])
    whole = one(
        V, 4, start=(W, H), fixed=([], [0, 1, 2, 3]), loss=loss(1.0), max_iter=200, finish="exact",
        scale="none", tol=0.0,
    )  # fmt: skip
    np.testing.assert_array_equal(whole.H, H)
    assert whole.status == "CONVERGED"
    slope = H.sum(0) - (V / (whole.W @ H.T)) @ H  # of the divergence in W
    assert np.abs(np.where(whole.W > 0, slope, np.minimum(slope, 0))).max() < 1e-3


def test_a_start_is_a_fit_of_the_roots():
    rules = {"max_iter": 0, "finish": "none"}
    far = one(COUNTS, 4, loss=loss(1.0), **rules)
    near = one(COUNTS, 4, loss=loss(1.0, starts=3, fits=30, mends=3, roots=True), **rules)
    assert near.error < 0.8 * far.error
    assert near.W.min() > 0


@pytest.mark.parametrize("kind", ["dense", "sparse", "weighted"])
def test_a_time_limit_ends_a_run(kind):
    rules: dict[str, Any] = {"max_iter": 2**31 - 1, "tol": 0.0, "seconds": 0.05}
    found = one(KINDS[kind][0], 4, loss=loss(1.0, fits=5), threads=2, **rules)
    assert found.status == "TIME_LIMIT"
    assert of(kind, found) == pytest.approx(objective(kind, 1.0, found), rel=1e-9)
    rules["seconds"] = 0.0
    none = one(KINDS[kind][0], 4, loss=loss(1.0), **rules)
    assert none.status == "TIME_LIMIT"


@pytest.mark.parametrize(
    ("data", "rules", "says"),
    [
        (V, {"loss": (1.0, 4)}, "loss has to be"),
        (V, {"loss": loss(np.nan)}, "beta has to be between"),
        (V, {"loss": (1.0, 0, 1.0, 1, 0, 0, False)}, "sweeps has to be between"),
        (V, {"loss": (1.0, 4, 0.5, 1, 0, 0, False)}, "growth has to be between"),
        (V, {"loss": loss(1.0, starts=0)}, "starts has to be between"),
        (V, {"loss": loss(1.0, fits=-1)}, "fits and mends have to be"),
        (("weighted", V, WEIGHTS), {}, "has weights, which need a loss"),
        (("weighted", V, WEIGHTS[:, :-1]), {"loss": loss(1.0)}, "another shape"),
        (("weighted", V, WEIGHTS - 1), {"loss": loss(1.0)}, "negative"),
        (("weighted", V, WEIGHTS + np.nan), {"loss": loss(1.0)}, "NaN or infinite"),
        (("weighted", V, V > 0), {"loss": loss(1.0)}, "float64 or float32"),
        ((*sparse_with_weights()[:-1], WEIGHTS[0][:3]), {"loss": loss(1.0)}, "too few"),
        (("low-rank", V[:, :2], V.T[:, :2]), {"loss": loss(1.0)}, "of low rank"),
        (V[:45], {"loss": loss(1.0), "pull": 0.1}, "symmetric"),
    ],
)
def test_what_does_not_fit_is_refused(data, rules, says):
    with pytest.raises(ValueError, match=says):
        one(data, 3, **rules)
