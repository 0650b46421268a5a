"""Many runs on data beyond memory: each ends as a single call would; they share their passes."""

import numpy as np
import pytest

from factormer import factorize, factorize_many
from factormer.data.outofcore import blocks_of
from factormer.data.sources import source_of
from factormer.data.together import in_turns

M, N, R = 400, 150, 4
RANKS = range(2, 6)


@pytest.fixture
def stored(tmp_path):
    rng = np.random.default_rng(1)
    W, H = rng.exponential(size=(M, R)), rng.exponential(size=(N, R))
    np.save(tmp_path / "V.npy", W @ H.T + rng.random((M, N)))
    return np.load(tmp_path / "V.npy", mmap_mode="r")


def blocks(V, limit=9e6):
    source = source_of(V)
    assert source is not None
    B = blocks_of(source, limit)
    assert len(B.reader.ends) > 3  # pyright: ignore[reportAttributeAccessIssue]
    return B


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr("factormer.data.outofcore._BLOCK", 5e4)


@pytest.mark.usefixtures("small_blocks")
def test_a_pass_serves_all_ranks(stored):
    B = blocks(stored)
    results = factorize_many(B, RANKS)
    longest = max(result.trace.passes[-1] for result in results)
    assert B.record.passes == 2 + longest
    assert B.reader.traffic.n_bytes == B.record.passes * stored.nbytes  # pyright: ignore
    for k, (rank, result) in enumerate(zip(RANKS, results, strict=True)):
        alone = factorize(stored, rank, random_state=k)
        assert result.rmse == pytest.approx(alone.rmse, rel=3e-4)  # they stop apart
        residual = stored - result.W @ result.H.T
        assert result.rmse == pytest.approx(np.sqrt(np.mean(residual**2)), rel=1e-6)
        assert result.W.shape == (M, rank)


@pytest.mark.usefixtures("small_blocks")
def test_replicates_differ_and_share_passes(stored):
    B = blocks(stored)
    results = factorize_many(B, 3, n_init=4, tol=0, max_iter=10)
    assert B.record.passes == 2 + 3
    assert len({float(result.W[0, 0]) for result in results}) == 4


@pytest.mark.usefixtures("small_blocks")
def test_those_without_room_beside_each_other_follow(stored):
    B = blocks(stored, 8e5)
    factorize_many(B, [4, 4, 4], tol=0, max_iter=10)
    assert B.record.passes == 2 + 3 * 3


def test_files_are_taken_within_the_limit(stored):
    results = factorize_many(stored, RANKS, memory_limit="1.2MB", tol=0, max_iter=10)
    assert [result.trace.passes[-1] for result in results] == [3] * len(RANKS)
    assert "blocks" in str(results[0].plan)


def test_a_folder_is_refused(stored, tmp_path):
    with pytest.raises(ValueError, match="of which no checksum is made"):
        factorize_many(stored, RANKS, memory_limit="1.2MB", folder=tmp_path / "sweep")


@pytest.mark.usefixtures("small_blocks")
def test_an_interruption_keeps_what_each_has(stored, monkeypatch):
    B, made = blocks(stored), []
    sweep = type(B).sweep

    def interrupted(self, *arguments):
        made.append(self)
        if self.reader is B.reader and len(made) > 8:
            raise KeyboardInterrupt
        return sweep(self, *arguments)

    monkeypatch.setattr(type(B), "sweep", interrupted)
    results = factorize_many(B, RANKS, tol=1e-12)
    assert results.status is not None
    assert results.status.name == "INTERRUPTED"
    assert results.done.all()
    assert {result.status.name for result in results} == {"INTERRUPTED"}


@pytest.mark.usefixtures("small_blocks")
def test_an_error_in_one_ends_all(stored):
    B = blocks(stored)
    B.total()

    def fails(V):
        raise RuntimeError("so it is")

    with pytest.raises(RuntimeError, match="so it is"):
        list(in_turns(B, [lambda V: V.sq_norm(), lambda V: V.both, fails]))
