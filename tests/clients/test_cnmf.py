"""cNMF's factorization stage in one call: the runs, files and options are cNMF's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

import factormer
from factormer.clients.cnmf import fitted


def counts(cells: int = 30, genes: int = 24) -> np.ndarray:
    rng = np.random.default_rng(2)
    mean = rng.gamma(1.0, size=(cells, 3)) @ rng.gamma(1.0, size=(3, genes))
    return rng.poisson(mean).astype(float)


V = scipy.sparse.csr_matrix(counts())


@pytest.fixture
def module(install):
    module = install("cnmf", "cnmf", "fake_cnmf.py", "1.7.1")
    factormer.patch("cnmf")
    return module


@pytest.fixture
def client(module, tmp_path):
    """A run that is prepared: ranks 2 and 3, three runs each."""
    client = module.cNMF(str(tmp_path))
    client.prepare(V, [2, 3], 3)
    return client


def spectra(client: Any, module: Any, k: int, run: int) -> Any:
    return module.load_df_from_npz(client.paths["iter_spectra"] % (k, run))


def agree(found: Any, expected: np.ndarray) -> None:
    """Assert equal components, in any order, as far as equal errors fix them."""
    A, B = found.to_numpy(float), np.asarray(expected)
    norms = np.linalg.norm(A, axis=1)[:, None] * np.linalg.norm(B, axis=1)
    pairs = (A @ B.T / norms).argmax(axis=1)
    assert sorted(pairs) == list(range(len(B)))
    assert np.linalg.norm(A - B[pairs]) < 0.02 * np.linalg.norm(B)


def files(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in tmp_path.glob("spectra*"))


def test_every_run_is_the_single_call_with_its_seed(client, module, tmp_path):
    client.factorize()
    assert len(files(tmp_path)) == 6
    for _, run in client.runs().iterrows():
        k, seed = int(run["n_components"]), int(run["nmf_seed"])
        found = spectra(client, module, k, run["iter"])
        alone = factormer.factorize(V, k, init="random", max_iter=1000, random_state=seed)
        agree(found, alone.H.T)
        assert list(found.index) == list(range(1, k + 1))
        assert list(found.columns) == [f"gene{j}" for j in range(24)]


def test_counts_with_few_zeros_are_solved_as_dense_with_the_same_components(client, module):
    large = scipy.sparse.csr_matrix(counts(250, 400))
    assert isinstance(fitted(large, {"loss": "frobenius"}), np.ndarray)
    thin = scipy.sparse.csr_matrix(counts(250, 400) * (np.arange(400) % 9 == 0))
    for kept, loss in ((V, "frobenius"), (large, "kullback-leibler"), (thin, 2)):
        assert fitted(kept, {"loss": loss}) is kept
    client.prepare(large, [3], 1)
    client.factorize()
    seed = int(client.runs()["nmf_seed"][0])
    alone = factormer.factorize(large, 3, init="random", max_iter=1000, random_state=seed)
    agree(spectra(client, module, 3, 0), alone.H.T)


def test_what_cannot_be_written_is_said(client, module, monkeypatch):
    def full(frame, path):
        raise OSError("no space left")

    monkeypatch.setattr(module, "save_df_to_npz", full)
    with pytest.raises(OSError, match="no space left"):
        client.factorize()


def test_workers_share_the_runs(client, module, tmp_path):
    client.factorize()
    whole = {k: spectra(client, module, k, run) for k, run in ((2, 0), (2, 2), (3, 1))}
    for name in files(tmp_path):
        (tmp_path / name).unlink()
    client.factorize(worker_i=0, total_workers=2)
    assert files(tmp_path) == [f"spectra.k_{k}.iter_{r}.npz" for k, r in ((2, 0), (2, 2), (3, 1))]
    for k, run in ((2, 2), (3, 1)):
        agree(spectra(client, module, k, run), whole[k])


def test_completed_runs_are_left_alone(client, tmp_path):
    runs = client.runs()
    runs["completed"] = [True, True, False, True, True, False]
    client.save(runs)
    client.factorize(skip_completed_runs=True)
    assert files(tmp_path) == ["spectra.k_2.iter_2.npz", "spectra.k_3.iter_2.npz"]
    client.factorize(worker_i=2, total_workers=3, skip_completed_runs=True)  # nothing is left
    assert len(files(tmp_path)) == 2


def test_processes_become_threads(client, tmp_path):
    before = torch.get_num_threads()
    client.factorize_multi_process(total_workers=2)
    assert len(files(tmp_path)) == 6
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    "options",
    [
        {"beta_loss": "kullback-leibler", "solver": "mu"},
        {"alpha_W": 0.01, "alpha_H": 0.02, "l1_ratio": 0.5},
        {"init": "nndsvd"},
        {"init": None},
        {"max_iter": 3, "tol": 0.0},
    ],
    ids=str,
)
def test_options_mean_what_they_mean_in_scikit_learn(client, module, options):
    client.prepare(V, [3], 1, **options)
    client.factorize()
    seed = int(client.runs()["nmf_seed"][0])
    given = {"init": "random", "max_iter": 1000, "tol": 1e-4} | options
    given.pop("solver", None)
    alone = factormer.NMF(3, random_state=seed, **given).fit(V).components_
    agree(spectra(client, module, 3, 0), alone)


def test_an_option_without_a_meaning_here_is_refused(client):
    client.prepare(V, [3], 1, shuffle=True)
    with pytest.raises(ValueError, match="the parameters of the runs have 'shuffle'"):
        client.factorize()
