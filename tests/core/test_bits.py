"""A lane returns the same bits alone, in a list, in any order, and on any number of threads."""

import numpy as np
import pytest
import scipy.sparse as sp

from tests.core.lanes import as_array, core, given, kinds, one, planted, run, under

KINDS = kinds()


@pytest.mark.parametrize("isa", core.isas())
@pytest.mark.parametrize("precision", ["float64", "mixed", "float32"])
@pytest.mark.parametrize("kind", KINDS)
def test_threads_change_no_bit(kind, precision, isa):
    rules = {"max_iter": 25, "precision": precision, "finish": "exact"}
    with under(isa):
        first = one(KINDS[kind], 5, threads=1, **rules)
        for threads in (2, 3, 16):
            assert one(KINDS[kind], 5, threads=threads, **rules).bits() == first.bits()


@pytest.mark.parametrize(("m", "n", "r"), [(900, 700, 12), (20, 30000, 6), (30000, 20, 6)])
def test_threads_change_no_bit_where_products_are_shared_out(m, n, r):
    V = planted(m, n, r)
    first = one(V, r, threads=1, max_iter=12)
    assert one(V, r, threads=2, max_iter=12).bits() == first.bits()
    assert one(V, r, threads=5, max_iter=12).bits() == first.bits()


@pytest.mark.parametrize("threads", [1, 2, 16])
def test_neighbours_and_their_order_change_no_bit(threads):
    rng = np.random.default_rng(0)
    problems = [
        planted(m, n, 3, seed=k) for k, (m, n) in enumerate(rng.integers(1, 60, (30, 2)).tolist())
    ]
    problems.append(planted(800, 600, 8))  # heavy: all threads share its products
    ranks = [int(r) for r in rng.integers(1, 9, len(problems))]
    alone = [
        one(V, r, k, threads=1, max_iter=40)
        for k, (V, r) in enumerate(zip(problems, ranks, strict=True))
    ]
    for order in (np.arange(len(problems)), rng.permutation(len(problems))):
        places = [int(k) for k in order]
        found = run(
            [problems[k] for k in places],
            list(range(len(places))),
            [ranks[k] for k in places],
            places,
            threads=threads,
            max_iter=40,
        )
        assert [f.bits() for f in found] == [alone[k].bits() for k in places]


@pytest.mark.parametrize("kind", KINDS)
def test_lanes_that_share_a_matrix_are_as_alone(kind):
    V, ranks, seeds = KINDS[kind], [2, 3, 4, 5] * 3, range(12)
    together = run([V], [0] * 12, ranks, seeds, threads=2, max_iter=30, precision="mixed")
    alone = [
        one(V, r, s, threads=1, max_iter=30, precision="mixed")
        for r, s in zip(ranks, seeds, strict=True)
    ]
    assert [f.bits() for f in together] == [f.bits() for f in alone]


def test_a_second_call_finds_no_trace_of_the_first():
    V = planted(80, 60, 4)
    first = one(V, 4, max_iter=30)
    one(planted(500, 400, 9, seed=3), 30, max_iter=3)
    one(V.astype(np.float32), 7, max_iter=3, precision="mixed")
    assert one(V, 4, max_iter=30).bits() == first.bits()


def test_watching_changes_no_bit():
    V, seen = planted(300, 200, 6), []
    plain = one(V, 6, max_iter=60)
    watched = one(V, 6, max_iter=60, seconds=1e6, callback=lambda *row: seen.append(row[:3]))
    assert watched.bits() == plain.bits()
    assert [t for _, t, _ in seen] == list(
        range(5, plain.iterations + (plain.status == "MAX_ITER"), 5)
    )
    assert [e for _, _, e in seen] == [plain.errors[t] for _, t, _ in seen]


@pytest.mark.parametrize(
    ("m", "n", "r"), [(30, 20, 3), (64, 64, 5), (150, 40, 4), (7, 300, 2), (200, 180, 8)]
)
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_instruction_sets_find_the_same_error_and_status(m, n, r, noise):
    found = []
    V = planted(m, n, r, noise=noise, seed=m)
    for isa in core.isas():
        with under(isa):
            found.append(one(V, r, max_iter=5000, tol=1e-9, finish="exact"))
    size = np.sqrt(np.mean(V**2))
    for other in found[1:]:
        assert other.status == found[0].status
        assert abs(other.error - found[0].error) <= 1e-6 * size


PLANTED = {
    "float32": (planted(60, 50, 4, noise=0.05).astype(np.float32), 4, {}),
    "by columns": (np.asfortranarray(planted(60, 50, 4)), 4, {}),
    "sparse": (sp.csr_matrix(np.maximum(planted(90, 70, 4) - 0.7, 0)), 4, {}),
    "low rank": (("low-rank", planted(60, 8, 5), planted(50, 8, 5, seed=1)), 4, {}),
    "penalties": (planted(60, 50, 4), 4, {"l1": (0.1, 0.2), "l2": (0.0, 0.3)}),
    "mixed": (planted(60, 50, 4), 4, {"precision": "mixed"}),
    "rotated": (planted(80, 70, 4), 4, {"start": "rotated"}),
    "rotated, mixed": (planted(80, 70, 4), 4, {"start": "rotated", "precision": "mixed"}),
    "rank 1": (planted(60, 50, 4), 1, {}),
}


@pytest.mark.parametrize("name", PLANTED)
def test_instruction_sets_agree_on_every_kind_of_lane(name):
    V, rank, rules = PLANTED[name]
    found = []
    for isa in core.isas():
        with under(isa):
            found.append(one(V, rank, max_iter=5000, tol=1e-9, finish="exact", **rules))
    size = np.sqrt(np.mean(np.square(as_array(V))))
    for other in found[1:]:
        assert other.status == found[0].status == "CONVERGED"
        assert abs(other.error - found[0].error) <= 1e-6 * size


@pytest.mark.parametrize("threads", [2, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_threads_change_no_bit_of_a_sketch_or_a_stage_after_it(kind, threads):
    V = KINDS[kind]
    first, other = (core.sketch(given(V), 12, seed=2, threads=count) for count in (1, threads))
    assert [part.tobytes() for part in first[:2]] == [part.tobytes() for part in other[:2]]
    assert first[2] == other[2]
    begun = one(("low-rank", *first), 5, max_iter=20, order=False, scale="none", threads=1)
    again = one(("low-rank", *first), 5, max_iter=20, order=False, scale="none", threads=threads)
    assert begun.bits() == again.bits()
    ended = [one(V, 5, start=begun[:2], max_iter=10, threads=count) for count in (1, threads)]
    assert ended[0].bits() == ended[1].bits()
