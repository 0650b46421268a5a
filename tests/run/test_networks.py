"""Networks for one rank inside calls: which proposals are taken, what is counted, what is said."""

import warnings

import numpy as np
import pytest
import torch

from factormer import NMF, factorize

R = 10


@pytest.fixture(scope="module")
def V():
    """A product of exponential factors, as the networks were trained on."""
    rng = np.random.default_rng(0)
    return rng.exponential(size=(30, R)) @ rng.exponential(size=(R, 20))


@pytest.fixture(scope="module")
def foreign():
    """A few ones among zeros, for which the networks have nothing to offer."""
    return (np.random.default_rng(0).random((100, 50)) < 0.02) * 1.0


def test_result_counts_the_proposals_made_and_kept(V):
    result = factorize(V, R, init="nndsvd", accelerator="accel-r10", max_iter=8, tol=0)
    assert result.proposals == (5, 5)
    assert factorize(V, R, init="init-r10-paper", max_iter=3).proposals == (1, 1)
    both = factorize(V, R, init="init-r10", accelerator="accel-r10", max_iter=8, tol=0)
    assert both.proposals is not None
    assert both.proposals.made == 6


@pytest.mark.parametrize("n_threads", [1, 4])
def test_proposals_on_worker_threads_count(V, n_threads):
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)  # several starts run side by side on them
    try:
        result = factorize(V, R, accelerator="accel-r10", n_init=4, max_iter=8, tol=0)
    finally:
        torch.set_num_threads(before)
    assert result.proposals is not None
    assert result.proposals.made >= 4 * 5


@pytest.mark.parametrize("accelerator", [None, "auto", "any-rank"])
def test_call_without_a_network_for_a_rank_counts_nothing(V, accelerator):
    assert factorize(V, 3, accelerator=accelerator, max_iter=3).proposals is None


@pytest.mark.parametrize("solver", ["hals", "ao-admm", "her", "mu"])
def test_network_never_costs_the_answer(foreign, solver):
    options = {"init": "nndsvd", "solver": solver, "tol": 0, "scale": None, "order": None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for n_iter in (1, 2, 6, 12):
            plain, learned = (
                factorize(foreign, R, accelerator=name, max_iter=n_iter, **options)
                for name in (None, "accel-r10")
            )
            assert learned.rmse <= plain.rmse * (1 + 1e-9)


def test_network_that_changed_nothing_is_said(foreign):
    with pytest.warns(UserWarning, match=r"changed nothing: .* refused all of its proposals \(5\)"):
        result = factorize(foreign, R, accelerator="accel-r10-paper", solver="hals", tol=0)
    assert result.proposals == (5, 0)
    with pytest.warns(UserWarning, match=r"refused all of its proposals \(1\)") as caught:
        NMF(R, init="init-r10", tol=0, max_iter=3).fit(foreign)
    assert caught[0].filename == __file__


def test_every_proposal_is_taken_if_asked_for(foreign):
    options = {"accelerator": "accel-r10-paper", "solver": "hals", "tol": 0, "max_iter": 6}
    result = factorize(foreign, R, safeguard="always", **options)
    assert result.proposals == (5, 5)
    assert "every proposal taken" in str(result.plan)
    model = NMF(R, safeguard="always", **options).fit(foreign)
    assert model.result_.proposals == (5, 5)


def test_safeguards_that_do_not_fit_are_refused_with_a_sentence(V):
    with pytest.raises(ValueError, match="safeguard is 'none'; choose one of 'descent', 'always'"):
        factorize(V, R, safeguard="none")
    with pytest.raises(ValueError, match="is for networks for one rank"):
        factorize(V, R, accelerator="any-rank", safeguard="always")
