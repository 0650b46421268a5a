"""Work shared over threads is done exactly once, errors come out, and torch gets its own back."""

from contextvars import ContextVar
from threading import Lock, get_ident
from time import sleep

import pytest
import torch

from factormer.kernels.threads import gather, limited, most, scratch, share, threads, width

MUCH = 10**12  # worth as many threads as there are
asked: ContextVar[str] = ContextVar("asked", default="nobody")


class Recorder:
    """Notes the pieces that it is called with, and by how many threads."""

    def __init__(self) -> None:
        self.done: list[int] = []
        self.callers: set[int] = set()
        self.widths: set[int] = set()
        self._lock = Lock()

    def __call__(self, start: int, stop: int) -> None:
        with self._lock:
            self.done += range(start, stop)
            self.callers.add(get_ident())
            self.widths.add(torch.get_num_threads())


@pytest.fixture
def four_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 17, 1000])
@pytest.mark.parametrize("work", [0, 2_500_000, MUCH])
def test_pieces_cover_the_range_exactly_once(n, work, four_threads):
    outside, inside = Recorder(), Recorder()
    share(outside, n, work=work)
    with threads():
        share(inside, n, work=work)
    assert sorted(inside.done) == sorted(outside.done) == list(range(n))


def test_work_is_shared_only_within_the_block_and_where_it_pays(four_threads):
    outside, little, much = Recorder(), Recorder(), Recorder()
    share(outside, 100, work=MUCH)
    with threads():
        share(little, 100, work=10)
        share(much, 100, work=MUCH)
    assert outside.callers == little.callers == {get_ident()}
    assert get_ident() in much.callers
    assert len(much.callers) > 1


def test_every_thread_has_a_torch_of_one_thread(four_threads):
    recorder = Recorder()
    with threads():
        for _ in range(20):
            share(recorder, 100, work=MUCH)
    assert recorder.widths == {1}


def test_workers_see_the_context_variables_of_the_caller(four_threads):
    seen = []

    def part(start: int, stop: int) -> None:
        seen.append((asked.get(), most()))
        asked.set("a worker")  # which stays in its own copy

    before = asked.set("the caller")
    try:
        with threads(), limited(7):
            share(part, 4, work=MUCH)
            asked.set("the caller")
            share(part, 4, work=MUCH)
    finally:
        asked.reset(before)
    assert seen == [("the caller", 7)] * 8


def test_a_worker_does_not_share_its_work_again(four_threads):
    here, widths, torch_has = get_ident(), [], []

    def part(start: int, stop: int) -> None:
        inner = Recorder()
        if get_ident() != here:
            share(inner, 100, work=MUCH)
            assert inner.callers == {get_ident()}
            widths.append(width())
            with threads():
                torch_has.append(torch.get_num_threads())
            torch_has.append(torch.get_num_threads())

    with threads():
        share(part, 4, work=MUCH)
        assert width() == 4
    assert widths == [1] * 3
    assert torch_has == [1] * 6


@pytest.mark.parametrize("bad", [0, 99], ids=["own piece", "other piece"])
def test_exceptions_come_out(bad, four_threads):
    def part(start: int, stop: int) -> None:
        if bad in range(start, stop):
            raise ZeroDivisionError

    with threads(), pytest.raises(ZeroDivisionError):
        share(part, 100, work=MUCH)


def test_nobody_works_on_after_an_exception(four_threads):
    ended = []

    def part(start: int, stop: int) -> None:
        if start == 25:
            raise ZeroDivisionError
        sleep(0.05)
        ended.append(start)

    with threads(), pytest.raises(ZeroDivisionError):
        share(part, 100, work=MUCH)
    assert sorted(ended) == [0, 50, 75]


def test_torch_gets_its_threads_back(four_threads):
    with threads():
        assert torch.get_num_threads() == 1
        with threads():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 4


def test_torch_gets_its_threads_back_after_an_exception(four_threads):
    with pytest.raises(ZeroDivisionError), threads(), threads():
        raise ZeroDivisionError
    assert torch.get_num_threads() == 4
    after = Recorder()
    share(after, 100, work=MUCH)
    assert after.callers == {get_ident()}


@pytest.mark.parametrize("n", [0, 1, 7, 1000])
def test_what_blocks_return_is_gathered_in_their_order(n, four_threads):
    with threads():
        found = gather(lambda start, stop: list(range(start, stop)), n, 3, work=MUCH)
    assert all(len(block) <= 3 for block in found)
    assert [i for block in found for i in block] == list(range(n))


def room(kind):
    class Room:
        @staticmethod
        def of(size):
            return kind(size)

    return Room


def test_scratch_of_two_classes_of_one_name_is_kept_apart():
    one, other = room(bytearray), room(lambda size: [0] * size)
    assert one.of.__qualname__ == other.of.__qualname__
    mine = scratch(one.of, 4)
    assert isinstance(scratch(other.of, 4), list)
    assert scratch(one.of, 4) is mine
    assert scratch(one.of, 5) is not mine
