"""The compiled core and the reference end alike wherever both serve a request."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from factormer import NMF, Status, factorize
from factormer.kernels.core import core
from factormer.penalties import Simplex

RNG = np.random.default_rng(0)
V = RNG.gamma(0.5, 1, (60, 4)) @ RNG.gamma(0.5, 1, (4, 50)) + 0.05 * RNG.random((60, 50))
REQUESTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "dense": (V, {}),
    "by columns": (np.asfortranarray(V), {}),
    "float32": (V.astype(np.float32), {}),
    "sparse": (scipy.sparse.csr_array(V * (V > 1)), {}),
    "all iterations": (V, {"tol": 0.0, "max_iter": 40}),
    "no order": (V, {"order": None, "scale": None}),
    "sum": (V, {"scale": "sum"}),
    "NNDSVD": (V, {"init": "nndsvd"}),
    "Kullback–Leibler": (V, {"loss": "kl", "solver": "newton"}),
    "Kullback–Leibler, sparse": (
        scipy.sparse.csr_array(V * (V > 1)),
        {"loss": "kl", "solver": "newton"},
    ),
    "Itakura–Saito": (V, {"loss": "is", "solver": "newton", "max_iter": 300}),
    "weights": (V, {"weights": RNG.random(V.shape), "solver": "newton"}),
}

pytestmark = pytest.mark.skipif(core() is None, reason="the core is not compiled here")


@pytest.mark.parametrize("name", REQUESTS)
def test_the_engines_agree(name):
    data, options = REQUESTS[name]
    asked = {"init": "random", "solver": "her", "max_iter": 3000, "tol": 1e-6} | options
    fast, slow = (factorize(data, 4, engine=engine, **asked) for engine in ("core", "reference"))
    assert fast.plan.engine == "core"
    assert slow.plan.engine == "reference"
    assert fast.status is slow.status
    assert fast.rmse == pytest.approx(slow.rmse, rel=1e-3 if "tol" in options else 1e-4)
    if asked.get("scale", "balanced") is None:  # which depends on the way there
        (W, H), (X, Y) = ((r.W * r.H.max(0), r.H / r.H.max(0)) for r in (fast, slow))
    else:
        (W, H), (X, Y) = ((r.W, r.H) for r in (fast, slow))
    for F, G in ((W, X), (H, Y)):
        assert F.dtype == G.dtype
        np.testing.assert_allclose(F, G, atol=0.05 * float(G.max()))


def test_a_request_that_the_core_does_not_serve_is_refused():
    with pytest.raises(ValueError, match="engine 'core' does not serve this, as it minimises β-"):
        factorize(V, 4, engine="core", regularize_W=Simplex())


def test_the_estimator_has_the_engines():
    ends = [NMF(4, engine=engine, random_state=0).fit(V) for engine in ("auto", "reference")]
    assert ends[0].reconstruction_err_ == pytest.approx(ends[1].reconstruction_err_, rel=1e-3)


@pytest.mark.parametrize(
    ("stop", "says"),
    [
        ("auto", "half as many iterations again would lower the error"),
        ("gradient", "the projected gradient is 0.0001 of the first"),
        ("sklearn", "ten iterations lower the error by less than 0.0001 of the first"),
    ],
)
def test_the_estimator_has_the_rules_to_stop_by(stop, says):
    result = NMF(4, stop=stop, max_iter=500, random_state=0).fit(V).result_
    assert result.status is Status.CONVERGED
    assert says in str(result.plan)
