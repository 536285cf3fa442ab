"""The file: whole lines, in order, within bounds, for its owner only."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trace_json_lines.bounded_file import BoundedFile

MAX = 100
WRITES = st.lists(st.tuples(st.integers(0, 2), st.integers(1, MAX)), max_size=40)


def kept(path: Path) -> bytes:
    """What is left, oldest first."""
    old = Path(f"{path}.1")
    return (old.read_bytes() if old.exists() else b"") + path.read_bytes()


@settings(max_examples=50)
@given(WRITES)
def test_the_latest_writes_are_kept_in_order_within_bounds(writes: list[tuple[int, int]]) -> None:
    """Three writers, as front-end processes are."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "t")
        files = [BoundedFile(str(path), MAX) for _ in range(3)]
        everything = b""
        for number, (writer, length) in enumerate(writes):
            data = bytes([number % 256]) * length
            files[writer].append(data)
            everything += data
        for each in files:
            each.close()
        left = kept(path)
        assert everything.endswith(left)
        assert len(left) >= min(len(everything), MAX)
        assert all(file.stat().st_size <= MAX for file in Path(directory).iterdir())


def test_what_is_larger_than_a_file_has_one_to_itself(tmp_path: Path) -> None:
    path = tmp_path / "t"
    file = BoundedFile(str(path), MAX)
    for letter, length in ((b"a", 10), (b"b", MAX + 1), (b"c", 10)):
        file.append(letter * length)
    file.close()
    assert path.read_bytes() == b"c" * 10
    assert Path(f"{path}.1").read_bytes() == b"b" * (MAX + 1)


def test_processes_do_not_tear_each_others_lines(tmp_path: Path) -> None:
    code = (
        "import sys; from trace_json_lines.bounded_file import BoundedFile\n"
        "file = BoundedFile(sys.argv[1], 30_000)\n"
        "for i in range(500): file.append(f'{sys.argv[2]} {i} {sys.argv[2] * 90}\\n'.encode())"
    )
    path = tmp_path / "t"
    started = [subprocess.Popen([sys.executable, "-c", code, str(path), letter]) for letter in "ab"]
    assert [process.wait() for process in started] == [0, 0]
    lines = kept(path).decode().splitlines()
    assert len(lines) > 300
    for letter in "ab":
        numbers = [int(line.split()[1]) for line in lines if line.startswith(letter)]
        assert numbers == sorted(numbers)
    assert all(line == line_of(line[0], line) for line in lines)
    assert "499" in {line.split()[1] for line in lines}


def line_of(letter: str, line: str) -> str:
    """The line that a process with this letter wrote under the number of `line`."""
    return f"{letter} {line.split()[1]} {letter * 90}"


def test_it_is_the_owners_and_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for data in (b"a\n", b"b\n"):
        file = BoundedFile(str(path), MAX)
        file.append(data)
        file.close()
        file.close()
    assert path.read_bytes() == b"a\nb\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_was_moved_away_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "t"
    file = BoundedFile(str(path), MAX)
    file.append(b"a")
    path.rename(tmp_path / "moved")
    file.append(b"b")
    file.close()
    assert (tmp_path / "moved").read_bytes() == b"a"
    assert path.read_bytes() == b"b"


def test_no_directory_and_no_regular_file_are_errors(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("missing/t", "pipe", "."):
        with pytest.raises(OSError):
            BoundedFile(str(tmp_path / name), MAX)
    with pytest.raises(OSError, match="regular"):
        BoundedFile("/dev/null", MAX)
