"""SigProfilerExtractor's replicates in one call: its data, and numbers as it reports them."""

from typing import Any

import numpy as np
import pytest
from numpy.random import PCG64DXSM, Generator, SeedSequence

import factormer
from factormer.clients.sigprofiler import similarities


def mutations(samples: int = 8) -> np.ndarray:
    rng = np.random.default_rng(3)
    signatures = rng.dirichlet(np.full(24, 0.3), 2)
    return rng.poisson(rng.gamma(2.0, 200.0, size=(samples, 2)) @ signatures).T


V = mutations()
ASKED: dict[str, Any] = {
    "NMF_replicates": 3,
    "NMF_init": "random",
    "normalization_cutoff": 500,
    "cpu": 1,
    "resample": True,
    "matrix_normalization": "gmm",
    "gpu": False,
    "batch_size": 1,
    "max_NMF_iterations": 1_000_000,
}


@pytest.fixture
def module(install):
    module = install("SigProfilerExtractor", "subroutines", "fake_sigprofiler.py", "1.4.1")
    factormer.patch("sigprofiler")
    return module


def generators() -> list[Any]:
    noise, starts = SeedSequence(11).spawn(2)
    return [[noise], starts]


def runs(module: Any, **changed: Any) -> list[Any]:
    asked = ASKED | changed
    return module.parallel_runs(
        asked, genomes=V, totalProcesses=2, replicate_generators=generators()
    )


def test_replicates_have_the_shapes_that_the_client_reads(module):
    found = runs(module)
    assert len(found) == 3
    for W, H, closeness in found:
        assert (W.shape, H.shape, closeness.shape) == ((24, 2), (2, 8), (7,))
        np.testing.assert_allclose(W.sum(axis=0), 1.0)
        assert H.dtype.kind == "i"
        assert closeness[-1] > 0  # iterations


def test_data_are_drawn_by_the_generators_of_the_client(module):
    for (_, H, _), seed in zip(runs(module), generators()[0][0].spawn(3), strict=True):
        drawn = module.bootstrap(V, Generator(PCG64DXSM(seed))).to_numpy()
        np.testing.assert_allclose(H.sum(axis=0), drawn.sum(axis=0), atol=1.5)  # H is rounded


def test_a_replicate_is_the_single_call_on_its_data(module):
    noise, starts = generators()[0][0].spawn(3)[1], generators()[1].spawn(3)[1]
    drawn = np.maximum(module.bootstrap(V, Generator(PCG64DXSM(noise))).to_numpy(float), 1e-4)
    data = module.normalize_samples(
        drawn, drawn.sum(axis=0), norm="gmm", normalization_cutoff=500
    ).to_numpy()
    alone = factormer.factorize(
        data,
        2,
        loss="kullback-leibler",
        init="random",
        tol=1e-6,
        max_iter=10_000,
        random_state=int(starts.generate_state(1)[0]),
    )
    W, _, closeness = runs(module)[1]
    np.testing.assert_allclose(W, alone.W / alone.W.sum(axis=0), atol=1e-4)
    np.testing.assert_allclose(
        closeness[:-1], module.similarities(data, alone.W @ alone.H.T), rtol=1e-2
    )


def test_without_resampling_the_data_are_those_given(module):
    totals = np.maximum(V, 1e-4).sum(axis=0)
    for _, H, _ in runs(module, resample=False, matrix_normalization="none", cpu=-1):
        np.testing.assert_allclose(H.sum(axis=0), totals, atol=1.5)


def test_similarities_are_those_of_the_client(module):
    rng = np.random.default_rng(5)
    genomes, fit = rng.random((24, 8)), rng.random((24, 8))
    expected = module.similarities(genomes, fit)
    np.testing.assert_allclose(similarities(genomes, fit), expected, atol=2e-3)


def test_the_gpu_stays_with_the_client(module):
    with pytest.warns(UserWarning, match="with gpu=True its own NMF runs"):
        assert runs(module, gpu=True) == ["its own"]
