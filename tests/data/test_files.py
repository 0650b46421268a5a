"""A file is written completely or not at all, and replaces only plain files."""

import errno
import io
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from factormer.data import files
from factormer.data.files import parsed, replacing, write

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fill_the_disk(monkeypatch: pytest.MonkeyPatch, at: int) -> list[str]:
    """From the file of this number on nothing can be written; what was, before that, by name."""
    opened: list[str] = []
    plain = Path.open

    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            raise FULL

    def open_or_fail(path: Path, mode: str = "r", *args: Any, **options: Any) -> Any:
        if "x" in mode:
            opened.append(path.name)
            if len(opened) > at:
                plain(path, mode).close()
                return Full()
        return plain(path, mode, *args, **options)

    monkeypatch.setattr(Path, "open", open_or_fail)
    return opened


def test_a_file_is_replaced_and_nothing_is_left_beside(tmp_path):
    path = tmp_path / "file"
    for content in ("old", "new"):
        write(path, content)
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_windows_waits_for_those_who_read_the_old_file(tmp_path, monkeypatch):
    tries, plain = [], os.replace

    def replace(new: Path, path: Path) -> None:
        tries.append(path)
        if len(tries) < 3:
            raise PermissionError(errno.EACCES, "Access is denied")
        plain(new, path)

    place = tmp_path / "file"  # made before its name would be one of Windows
    monkeypatch.setattr(files.os, "replace", replace)
    monkeypatch.setattr(files.time, "sleep", lambda seconds: None)
    (tmp_path / "new").write_text("new")
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "name", "nt")
        files._replace(tmp_path / "new", place)
    assert (place.read_text(), len(tries)) == ("new", 3)


@pytest.mark.parametrize("error", [FULL, KeyboardInterrupt(), ValueError("other")])
def test_what_goes_wrong_leaves_the_old_file_alone(tmp_path, error):
    path = tmp_path / "file"
    write(path, "old")

    def fail() -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(type(error)) as caught:
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    if error is FULL:
        assert caught.value.errno == errno.ENOSPC
        assert "file cannot be written (No space left on device)" in str(caught.value)
        assert "what was there before is unchanged" in str(caught.value)


def make(kind: str, path: Path) -> Any:
    """Something that is no plain file."""
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "symbolic link":
        path.with_name("target").write_text("mine")
        path.symlink_to("target")
    elif kind == "device":
        try:
            os.mknod(path, 0o20600, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("needs the right to make a device")
    else:
        server = socket.socket(socket.AF_UNIX)
        server.bind(os.path.relpath(path))
        return server


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes and sockets in the file system")
@pytest.mark.parametrize("kind", ["folder", "pipe", "symbolic link", "device", "socket"])
def test_what_is_no_plain_file_is_never_replaced(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    kept = make(kind, path := tmp_path / "place")
    before = path.lstat()
    with pytest.raises(OSError, match=rf"place cannot be written \(it is a {kind}, which is nev"):
        write(path, "new")
    assert path.lstat() == before
    if kind == "symbolic link":
        assert (tmp_path / "target").read_text() == "mine"
    if kept is not None:
        kept.close()


def test_a_link_that_leads_nowhere_is_not_replaced_either(tmp_path):
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(OSError, match="it is a symbolic link"):
        write(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "{", ""])
def test_text_that_is_no_json_is_a_matter_of_values(text):
    with pytest.raises(ValueError, match=r"nested too deep|Expecting|delimiter"):
        parsed(text)
