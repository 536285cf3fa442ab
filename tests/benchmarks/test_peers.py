"""Where peers are looked for, and what a table says without them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.peers import PEERS, find_peer, how_to_get, main


def installed(directory: Path, name: str) -> Path:
    python = directory / name / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    return python


def test_a_peer_is_found_in_its_own_environment(tmp_path: Path) -> None:
    python = installed(tmp_path, "vllm")
    found = find_peer("vllm", str(tmp_path))
    assert found is not None
    assert found.command("some.py", "a")[0] == str(python)


def test_a_peer_that_is_not_installed_is_none(tmp_path: Path) -> None:
    assert find_peer("vllm", str(tmp_path)) is None
    assert find_peer("llama", None) is None


def test_a_peer_of_our_own_environment_is_always_there() -> None:
    found = find_peer("transformers", None)
    assert found is not None
    assert found.python == Path(sys.executable)


def test_what_the_caller_sets_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "vllm")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "5")
    found = find_peer("vllm", str(tmp_path))
    assert found is not None
    settings = found.environment()
    assert settings["VLLM_CPU_KVCACHE_SPACE"] == "5"
    assert settings["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"


def test_libraries_are_preloaded_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    library = installed(tmp_path, "vllm").parent.parent / "lib" / "libiomp5.so"
    library.parent.mkdir()
    library.touch()
    found = find_peer("vllm", str(tmp_path))
    assert found is not None
    assert str(library) in found.environment()["LD_PRELOAD"].split(":")


def test_the_list_says_what_is_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(tmp_path, "llama")
    assert main(["--peers", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(PEERS)
    assert any(line.startswith("llama: llama-cpp-python==") for line in lines)
    assert sum("not installed" in line for line in lines) == 1


def test_a_table_says_how_to_get_a_missing_peer() -> None:
    assert "python -m benchmarks peers install llama --directory" in how_to_get("llama")
