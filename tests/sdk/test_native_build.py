"""Compiled kernels are built when they are needed first, kept, and loaded from nowhere else."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
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


def test_built_once(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = counting_compiler(tmp_path, monkeypatch)
    assert library(tmp_path).answer() == 42
    assert runs(log) == 1
    assert library(tmp_path).answer() == 42
    assert runs(log) == 1
    (built,) = cache.glob("*/test-kernels.so")
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
    (built,) = cache.glob("*/test-kernels.so")
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
    (built,) = cache.glob("*/test-kernels.so")
    built.rename(tmp_path / "elsewhere.so")
    built.symlink_to(tmp_path / "elsewhere.so")
    with pytest.raises(KernelsUnavailable, match="not loaded"):
        library(tmp_path)


def test_several_processes_at_once(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "test_kernels.c").write_text(SOURCE, encoding="utf-8")
    program = (
        "import sys; from pathlib import Path; from tests.sdk.kernels import library;"
        "assert library(Path(sys.argv[1])).answer() == 42"
    )
    children = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path)]) for _ in range(3)]
    assert [child.wait() for child in children] == [0, 0, 0]
    assert sorted(path.name for path in cache.glob("*/*")) == ["pool.so", "test-kernels.so"]
