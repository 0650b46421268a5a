"""A program as users write it, with public names alone: it runs, and its types are checked."""
# pyright: strict

from pathlib import Path
from typing import assert_type

import numpy as np
import numpy.typing as npt

import factormer
from factormer.datasets import Example, make_documents
from factormer.losses import Beta, Loss
from factormer.penalties import L1, L2, Penalty

Array = npt.NDArray[np.float64]


def matrix() -> Array:
    rng = np.random.default_rng(0)
    return rng.random((30, 3)) @ rng.random((3, 12))


def test_functions():
    V = matrix()
    result = factormer.factorize(V, 3, random_state=0, max_iter=20, tol=1e-2)
    assert_type(result, factormer.Result)
    assert float(result.rmse) >= 0  # of a stack of matrices it is an array
    assert_type(result.n_iter, int)
    assert_type(result.status, factormer.Status)
    assert_type(result.trace, factormer.Trace)
    error: float = float(np.abs(V - result.W @ result.H.T).max())
    assert error < V.max()

    several = factormer.factorize_many(V, ranks=range(1, 4), n_init=2, max_iter=10)
    assert isinstance(several, factormer.Results)
    assert [one.W.shape[1] for one in several] == [1, 1, 2, 2, 3, 3]


def test_losses_and_penalties():
    penalties: list[Penalty] = [L1(0.1), L2(0.1)]
    loss: Loss = Beta(1.0)
    result = factormer.factorize(matrix(), 2, loss=loss, max_iter=5, regularize_H=penalties)
    assert float(result.loss) >= 0


def test_estimator(tmp_path: Path):
    V = matrix()
    model = factormer.NMF(n_components=3, random_state=0, max_iter=20, tol=1e-2)
    W = model.fit_transform(V)
    model.save(tmp_path / "model.safetensors")
    again = factormer.NMF.load(tmp_path / "model.safetensors")
    assert_type(again, factormer.NMF)
    assert again.transform(V).shape == W.shape == (30, 3)


def test_choices():
    choice = factormer.select_rank(matrix(), ranks=range(1, 5))
    assert_type(choice, factormer.Choice)
    assert_type(choice.rank, int)
    assert_type(choice.clear, bool)
    assert choice.rank in range(1, 5)


def test_generated_data():
    documents = make_documents(20, random_state=0)
    assert_type(documents, Example)
    assert documents.V.shape == (20, len(documents.columns))
