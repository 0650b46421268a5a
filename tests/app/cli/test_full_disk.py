"""A disk that fills at any moment of a command: a sentence that names a file, and nothing torn."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from factormer.app.cli import main
from factormer.app.report import write_report
from factormer.app.runs import RunFolder
from tests.data.test_files import fill_the_disk

pytestmark = pytest.mark.usefixtures("data_files")
RUN = Path("kept")
FIT = ["fit", "data.csv", "--max-iter", "3", "--out", str(RUN), "--rank"]


@pytest.fixture
def earlier(data_files: None, capsys: pytest.CaptureFixture[str]) -> dict[str, bytes]:
    """Return the bytes of what a run of rank 2 left in the folder."""
    assert main([*FIT, "2"]) == 0
    capsys.readouterr()
    return {str(path): path.read_bytes() for path in (RUN / "rank-2").iterdir()}


def assert_whole(earlier: dict[str, bytes]) -> None:
    """Every file can be read, those of the earlier run are as they were, and nothing lies about."""
    files = [path for path in RUN.rglob("*") if path.is_file()]
    assert not [path for path in RUN.rglob(".*")]
    assert {name: Path(name).read_bytes() for name in earlier} == earlier
    for path in files:
        if path.suffix == ".json":
            assert json.loads(path.read_text())
        if path.suffix == ".npz":
            with np.load(path) as arrays:
                assert all(np.isfinite(arrays[name]).all() for name in arrays.files)
    assert RunFolder(RUN).results()[0].rank == 2
    assert RunFolder(RUN).report.read_text().rstrip().endswith("</html>")
    write_report(RunFolder(RUN))


def assert_told(capsys: pytest.CaptureFixture[str]) -> None:
    said = capsys.readouterr().err
    assert said.startswith("factormer: ")
    assert str(RUN) in said
    assert "Traceback" not in said


def test_each_write_of_a_run_may_be_the_last(earlier, capsys, monkeypatch):
    fits = 0
    for at in range(100):
        fits += 1
        with monkeypatch.context() as patch:
            written = fill_the_disk(patch, at)
            ended = main([*FIT, "2..3"])
        if ended == 0:
            break
        assert ended == 1
        assert len(written) > at
        assert_told(capsys)
        assert_whole(earlier)
    assert fits > 9  # the probe, descriptions, six files of a rank, the page
    assert [result.rank for result in RunFolder(RUN).results()] == [2, 3]


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """As on a disk that fills within a file: the system itself takes no more bytes than these."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [1, 300, 1_000, 5_000, 50_000])
def test_a_file_that_is_cut_within_is_not_kept(size, earlier, capsys):
    with files_of_at_most(size):
        ended = main([*FIT, "3"])
    assert ended == 1
    assert_told(capsys)
    assert_whole(earlier)
    assert main([*FIT, "2..3"]) == 0
