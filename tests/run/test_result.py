"""A result says in words why the run ended."""

import re
from html import escape
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

import factormer
from factormer.penalties import L1, L2
from factormer.run.result import Status


@pytest.mark.parametrize("status", Status)
def test_status_reads_as_a_sentence(status):
    assert str(status) == f"{status.name}: {status.value}"


def factorized(**options):
    rng = np.random.default_rng(0)
    V = rng.poisson(rng.gamma(1.0, size=(12, 3)) @ rng.gamma(1.0, size=(3, 9)) * 4)
    return V, factormer.factorize(V.astype(float) + 1, 3, max_iter=20, **options)


@pytest.mark.parametrize(
    ("options", "measure"),
    [
        ({}, "RMSE"),
        ({"loss": "kullback-leibler"}, "Kullback–Leibler divergence"),
        ({"loss": "itakura-saito"}, "Itakura–Saito divergence"),
        ({"loss": 1.5}, "β = 1.5 divergence"),
        ({"regularize_W": L1(0.1)}, "objective"),
        ({"mask": np.arange(108).reshape(12, 9) % 7 > 0}, "RMSE"),
    ],
)
def test_a_result_tells_what_was_minimised(options, measure):
    _, result = factorized(**options)
    value = result.rmse if measure == "RMSE" else result.loss
    assert f"at rank 3, {measure} {value:.4g}, " in repr(result)
    assert result.trace.measure == measure
    np.testing.assert_array_equal(
        result.trace.measured, result.trace.rmse if measure == "RMSE" else result.trace.loss
    )


@pytest.mark.parametrize("options", [{}, {"mask": np.arange(108).reshape(12, 9) % 7 > 0}])
def test_the_squared_error_is_told_beside_an_objective_with_penalties(options):
    V, result = factorized(regularize_W=L1(0.1), regularize_H=L2(3.0), **options)
    left = (result.W @ result.H.T - (V + 1))[options.get("mask", np.ones_like(V, bool))]
    for shown in (repr(result), result._repr_html_()):
        found = re.search(r", objective [^,]+, rmse ([^,]+), 20 iterations", shown)
        assert found is not None
        assert float(found[1]) == pytest.approx(np.sqrt(np.mean(left**2)), rel=1e-3)
    assert "RMSE" not in repr(factorized(loss="kl", regularize_W=L1(0.1))[1])  # nor is it one


def test_a_sweep_from_disk_tells_what_was_minimised(tmp_path):
    V, _ = factorized()
    options = {"loss": "kl", "max_iter": 5, "folder": tmp_path / "sweep"}
    for _ in range(2):  # made, and read
        results = factormer.factorize_many(V + 1.0, [2], **options)
        assert "Kullback–Leibler divergence" in repr(results[0])
        each = f"{results[0].loss / V.size:.4g}"
        assert f"median Kullback–Leibler divergence {each} an entry" in repr(results)


def test_labels_of_a_frame_are_kept():
    pandas = pytest.importorskip("pandas")
    V, plain = factorized()
    rows, columns = [f"s{i}" for i in range(12)], pandas.Index(list("abcdefghi"), name="gene")
    frame = pandas.DataFrame(V + 1.0, rows, columns)
    found = factormer.factorize(frame, 3, max_iter=20)
    W, H = found.frames()
    assert isinstance(found.W, np.ndarray)
    assert (list(W.index), list(H.index), H.index.name) == (rows, list(columns), "gene")
    assert list(W.columns) == [0, 1, 2]
    np.testing.assert_array_equal(H.to_numpy(), plain.H)
    np.testing.assert_array_equal(plain.frames().W.to_numpy(), plain.W)
    for other in (
        factormer.factorize_many(frame, [2], max_iter=3)[0],
        factormer.NMF(2, max_iter=3, tol=0).fit(frame).result_,
        factormer.consensus(frame, 2, n_runs=2, max_iter=3),
    ):
        assert list(other.frames().W.index) == rows
    table = found.trace.table()
    assert list(table) == ["iteration", "seconds", "passes", "rmse", "loss"]
    assert len(table) == found.n_iter + 1
    stack = factormer.factorize(torch.rand(2, 5, 4), 2, max_iter=2)
    with pytest.raises(ValueError, match="of a stack of matrices"):
        stack.frames()
    with pytest.raises(ValueError, match="of a stack of matrices"):
        stack.trace.table()


class Balanced(HTMLParser):
    """Notes tags that are not closed, and text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open, self.text, self.tags = [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.text.append(data)


@pytest.mark.parametrize("rank", [1, 3, 11])
@pytest.mark.parametrize("max_iter", [0, 8])
def test_a_notebook_shows_a_picture(rank, max_iter):
    pandas = pytest.importorskip("pandas")
    V = np.random.default_rng(0).random((12, 30)) + 0.1
    V[:, 4] += 9
    frame = pandas.DataFrame(V, columns=[f"<gene {j}>" for j in range(30)])
    result = factormer.factorize(frame, rank, loss="kl", max_iter=max_iter)
    html = Balanced(result._repr_html_())
    assert html.open == []
    assert html.tags.count("line") == min(rank, 8)
    words = " ".join(html.text)
    assert "Kullback–Leibler divergence by iteration" in words
    assert "<gene 4>" in words
    assert ("3 more components" in words) == (rank == 11)
    assert "http" not in words
    assert "href" not in result._repr_html_()


def test_a_stack_in_a_notebook_is_a_line_and_an_estimator_keeps_its_diagram():
    stack = factormer.factorize(torch.rand(2, 5, 4), 2, max_iter=2)
    assert stack._repr_html_() == f"<div>{escape(repr(stack))}</div>"
    assert "sk-top-container" in factormer.NMF(2)._repr_html_()
