"""Compiled kernels are built when they are needed first, kept, and loaded from nowhere else."""

from __future__ import annotations

import logging
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from framework.sdk.native import KernelsUnavailable, available, load_library
from hookspecs.errors import FrameworkError
from tests.sdk.kernels import SOURCE, library

COMPILER = """#!/bin/sh
echo run >> "{log}"
exec cc "$@"
"""
WRONG_COMPILER = """#!/bin/sh
while [ "$1" != -o ]; do shift; done
echo nothing > "$2"
"""
PROGRAM = [
    sys.executable,
    "-c",
    "import logging, sys; from pathlib import Path; from tests.sdk.kernels import library;"
    "logging.basicConfig(level=logging.INFO, format='%(message)s');"
    "assert library(Path(sys.argv[1])).answer() == 42",
]
"""Loads the library and calls it; its argument is the directory of the source."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    assert available() is None
    monkeypatch.setenv("FRAMEWORK_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


def counting_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    log, script = tmp_path / "runs", tmp_path / "counting-cc"
    log.touch()
    script.write_text(COMPILER.format(log=log), encoding="utf-8")
    script.chmod(0o700)
    monkeypatch.setenv("CC", str(script))
    return log


def runs(log: Path) -> int:
    return len(log.read_text(encoding="utf-8").splitlines())


def told_in_another_process(tmp_path: Path) -> str:
    """The log of PROGRAM, in a process without anything of the library in its memory."""
    done = subprocess.run([*PROGRAM, str(tmp_path)], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_built_once(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = counting_compiler(tmp_path, monkeypatch)
    assert library(tmp_path).answer() == 42
    assert runs(log) == 1
    assert library(tmp_path).answer() == 42
    assert runs(log) == 1
    (built,) = cache.glob("*/test-kernels-*.so")
    for own in (cache, built.parent, built):
        assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert list(built.parent.iterdir()) == [built], "nothing else is left"


def test_built_anew_for_other_flags_and_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = counting_compiler(tmp_path, monkeypatch)
    assert library(tmp_path, 1).answer() == 1
    assert library(tmp_path, 2).answer() == 2
    (tmp_path / "part.h").write_text("/* a part */", encoding="utf-8")
    assert library(tmp_path, 2).answer() == 2
    assert runs(log) == 3


def test_what_the_compiler_says(tmp_path: Path, cache: Path) -> None:
    source = tmp_path / "broken.c"
    source.write_text('#include "fw_kernel.h"\nint f(void) { return nothing; }\n', encoding="utf-8")
    with pytest.raises(KernelsUnavailable) as caught:
        load_library("broken", source)
    assert isinstance(caught.value, FrameworkError)
    assert "broken.c" in str(caught.value) and "'nothing' undeclared" in str(caught.value)
    assert not list(cache.glob("*/*")), "nothing is left"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("false", r"\.c': it says nothing and gives 1"),
        ("no-such-compiler", "'no-such-compiler' of the environment variable CC is not on the"),
        ("'cc", "no command"),
    ],
)
def test_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, text: str
) -> None:
    monkeypatch.setenv("CC", command)
    with pytest.raises(KernelsUnavailable, match=text):
        library(tmp_path)


def test_a_compiler_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "cc -U__clang__ -U__GNUC__ -D__GNUC__=8")
    with pytest.raises(KernelsUnavailable) as caught:
        library(tmp_path)
    first, _, rest = str(caught.value).partition("\n")
    assert "error" in first and "kernels need gcc 9 or clang 10" in first, "the first line says it"
    assert "Install gcc 9" in rest


def test_no_compiler_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KernelsUnavailable, match="none of cc, gcc, clang is on the path"):
        library(tmp_path)


def test_what_was_built_is_found_without_a_compiler(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image is made where there is a compiler, and runs where there is none."""
    library(tmp_path)
    (built,) = cache.glob("*/test-kernels-*.so")
    (tmp_path / "no-programs").mkdir()
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))
    library(tmp_path)
    built.unlink()
    with pytest.raises(KernelsUnavailable, match="none of cc, gcc, clang is on the path"):
        library(tmp_path)


def test_a_full_disk_is_not_blamed_on_the_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "cc-without-room"
    script.write_text(
        "#!/bin/sh\necho 'ld: final link failed: No space left on device'\n"
        "echo 'collect2: error: ld returned 1 exit status'\nexit 1\n",
        encoding="utf-8",
    )
    script.chmod(0o700)
    monkeypatch.setenv("CC", str(script))
    with pytest.raises(KernelsUnavailable, match=r"no room to build .*Make room") as caught:
        library(tmp_path)
    assert "Install gcc" not in str(caught.value)


def test_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FRAMEWORK_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(KernelsUnavailable, match="Set FRAMEWORK_CACHE_DIR to a directory"):
        library(tmp_path)


def test_a_file_that_is_no_library(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "wrong-cc"
    script.write_text(WRONG_COMPILER, encoding="utf-8")
    script.chmod(0o700)
    monkeypatch.setenv("CC", str(script))
    with pytest.raises(KernelsUnavailable, match="can not be loaded"):
        library(tmp_path)
    assert not list(cache.glob("*/*")), "it is not kept for the next start"


@pytest.mark.parametrize("part", ["root", "directory", "library"])
def test_where_others_may_write(tmp_path: Path, cache: Path, part: str) -> None:
    library(tmp_path)
    (built,) = cache.glob("*/test-kernels-*.so")
    own = {"root": cache, "directory": built.parent, "library": built}[part]
    own.chmod(0o770)
    with pytest.raises(KernelsUnavailable, match="can be written by others"):
        library(tmp_path)


def test_what_belongs_to_others(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(KernelsUnavailable, match="belongs to another user"):
        library(tmp_path)


def test_a_link_to_elsewhere(tmp_path: Path, cache: Path) -> None:
    library(tmp_path)
    (built,) = cache.glob("*/test-kernels-*.so")
    built.rename(tmp_path / "elsewhere.so")
    built.symlink_to(tmp_path / "elsewhere.so")
    with pytest.raises(KernelsUnavailable, match="not loaded"):
        library(tmp_path)


def test_several_processes_at_once(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "test_kernels.c").write_text(SOURCE, encoding="utf-8")
    children = [subprocess.Popen([*PROGRAM, str(tmp_path)]) for _ in range(3)]
    assert [child.wait() for child in children] == [0, 0, 0]
    names = {path.name.rpartition("-")[0] for path in cache.glob("*/*")}
    assert names == {"pool", "test-kernels"}, "nothing else is left"


def cut_in_half(built: Path) -> None:
    built.write_bytes(built.read_bytes()[: built.stat().st_size // 2])


def flip_bytes(built: Path) -> None:
    content = bytearray(built.read_bytes())
    third = len(content) // 3
    content[third : 2 * third] = bytes(byte ^ 0xFF for byte in content[third : 2 * third])
    built.write_bytes(content)


def flip_one_bit(built: Path) -> None:
    content = bytearray(built.read_bytes())
    content[len(content) // 2] ^= 1
    built.write_bytes(content)


def append(built: Path) -> None:
    built.write_bytes(built.read_bytes() + b"more")


def other_library(built: Path) -> None:
    (other,) = built.parent.parent.glob("*/pool-*.so")
    built.write_bytes(other.read_bytes())


def no_digest(built: Path) -> None:
    built.rename(built.with_name("test-kernels.so"))


DAMAGES: list[Callable[[Path], object]] = [
    cut_in_half,
    flip_bytes,
    flip_one_bit,
    append,
    other_library,
    no_digest,
    lambda built: built.write_bytes(b""),
    lambda built: built.write_bytes(bytes(built.stat().st_size)),
    lambda built: built.write_text("something else", encoding="utf-8"),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_was_damaged_is_built_again(
    tmp_path: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[Path], object],
) -> None:
    log = counting_compiler(tmp_path, monkeypatch)
    assert "compiling" in told_in_another_process(tmp_path)
    built = {path.name.rpartition("-")[0]: path for path in cache.glob("*/*")}
    damage(built["test-kernels"])
    told = told_in_another_process(tmp_path)
    assert "damaged" in told and told.count("compiled the kernels 'test-kernels' in") == 1
    assert told_in_another_process(tmp_path) == ""
    assert runs(log) == 3, "the pool, the kernels, and these again"


def test_each_library_may_be_damaged(tmp_path: Path, cache: Path) -> None:
    told_in_another_process(tmp_path)
    for built in cache.glob("*/*"):
        built.write_bytes(b"")
    assert told_in_another_process(tmp_path).count("damaged") == 2
    assert told_in_another_process(tmp_path) == ""


def test_a_damaged_library_and_several_processes(tmp_path: Path, cache: Path) -> None:
    told_in_another_process(tmp_path)
    for built in cache.glob("*/*"):
        cut_in_half(built)
    children = [subprocess.Popen([*PROGRAM, str(tmp_path)]) for _ in range(3)]
    assert [child.wait() for child in children] == [0, 0, 0]
    assert told_in_another_process(tmp_path) == ""


def test_what_is_said_of_a_build(
    tmp_path: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "framework")
    library(tmp_path)
    begin, end = (record.getMessage() for record in caplog.records)
    assert begin.startswith("compiling the kernels 'test-kernels' once for this processor")
    assert str(cache) in begin
    assert end.startswith("compiled the kernels 'test-kernels' in ")
    caplog.clear()
    library(tmp_path)
    assert not caplog.records, "nothing is said of what is there"


def test_what_a_killed_build_left(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "killing-cc"
    script.write_text("#!/bin/sh\nkill -9 $PPID\n", encoding="utf-8")
    script.chmod(0o700)
    (tmp_path / "test_kernels.c").write_text(SOURCE, encoding="utf-8")
    with monkeypatch.context() as killing:
        killing.setenv("CC", str(script))
        assert subprocess.run([*PROGRAM, str(tmp_path)], check=False).returncode == -signal.SIGKILL
    (left,) = cache.glob("*/*")
    library(tmp_path, 1)
    assert left.exists(), "its build might still run"
    past = left.stat().st_mtime - 2 * 3600
    os.utime(left, (past, past))
    library(tmp_path, 2)
    assert not left.exists()
    assert len(list(cache.glob("*/*"))) == 2, "what was built stays"
