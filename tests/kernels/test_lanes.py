"""Pieces in lanes: order, sums, errors and Ctrl-C."""

import threading
import time

import pytest
import torch

from factormer.kernels.lanes import Line
from factormer.kernels.threads import threads, width


@pytest.mark.parametrize("lanes", [1, 2, 3, 7])
@pytest.mark.parametrize("n", [0, 1, 2, 20])
def test_loads_and_joins_are_in_order_and_one_at_a_time(lanes, n):
    loaded, joined, free = [], [], [threading.Lock() for _ in range(lanes)]

    def load(k, lane):
        assert free[lane].acquire(blocking=False)  # its last piece is done with
        loaded.append(k)
        return k, lane

    def work(k, piece):
        assert piece[0] == k
        assert not torch.is_grad_enabled()
        time.sleep(0.001 * (k % 3))
        free[piece[1]].release()
        return 10 * k

    with torch.no_grad():
        Line(load, work, lambda k, found: joined.append((k, found))).run(n, lanes)
    assert loaded == list(range(n))
    assert joined == [(k, 10 * k) for k in range(n)]


def test_no_piece_is_begun_long_before_the_first_is_joined():
    begun, first = [], threading.Event()

    def load(k, lane):
        begun.append(k)
        if len(begun) == 4:
            first.set()

    def work(k, piece):
        if not k:
            assert first.wait(5)
            assert max(begun) <= 4

    Line(load, work, lambda k, found: None).run(30, 3)
    assert begun == list(range(30))


@pytest.mark.parametrize("where", ["load", "work", "join"])
def test_the_error_of_the_first_bad_piece_is_raised(where):
    def at(place):
        def call(k, *_):
            if place == where and k in (5, 6):
                time.sleep(0.02 * (6 - k))  # the later one fails first
                raise ValueError(f"piece {k}")

        return call

    with pytest.raises(ValueError, match="piece 5"):
        Line(at("load"), at("work"), at("join")).run(40, 3)


def test_an_interruption_ends_all_lanes(monkeypatch):
    done = []

    def work(k, piece):
        done.append(k)
        time.sleep(0.002)

    class Interrupted(Line):
        def _lane(self, lane, n, lanes, grad):
            super()._lane(lane, n, lanes, grad)
            if not lane:
                raise KeyboardInterrupt

    line = Interrupted(lambda k, lane: None, work, lambda k, found: None)
    with pytest.raises(KeyboardInterrupt):
        line.run(3, 3)
    assert not [t for t in threading.enumerate() if t.name.startswith("factormer-lane")]


def test_lanes_share_out_the_threads_there_are():
    seen = []
    before = torch.get_num_threads()
    with threads():
        Line(lambda k, lane: None, lambda k, piece: seen.append(width()), print).run(0, 3)
        Line(lambda k, lane: None, lambda k, piece: seen.append(width()), _none).run(3, 3)
    assert seen == [max(before // 2, 1)] * 3
    assert torch.get_num_threads() == before


def _none(k, found):
    assert found is None
