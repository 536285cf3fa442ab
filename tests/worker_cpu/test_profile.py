"""Profiles: Chrome traces of what the worker computes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hookspecs.contracts.model import ResolvedModel
from hookspecs.errors import CommandError
from tests.worker_cpu.driver import Driver, Request, random_prompt

Checkpoint = Callable[[str], ResolvedModel]


def test_a_trace_of_what_was_computed(tmp_path: Path, checkpoint: Checkpoint) -> None:
    driver = Driver(checkpoint("llama"))
    directory = tmp_path / "deep" / "traces"
    paths = []
    for _ in range(2):
        driver.worker.start_profile(str(directory))
        driver.run(Request(random_prompt(6), 2))
        paths.append(driver.worker.stop_profile())
    names = [f"framework-worker-0-{os.getpid()}-{number}.json" for number in range(2)]
    assert paths == [str(directory / name) for name in names]
    assert directory.stat().st_mode & 0o777 == 0o700
    for path in map(Path, paths):
        events = {event.get("name") for event in json.loads(path.read_bytes())["traceEvents"]}
        assert {"aten::embedding", "aten::mm"} <= events


def test_files_that_are_there_are_kept(tmp_path: Path, checkpoint: Checkpoint) -> None:
    taken = tmp_path / f"framework-worker-0-{os.getpid()}-0.json"
    taken.write_text("mine")
    worker = Driver(checkpoint("llama")).worker
    worker.start_profile(str(tmp_path))
    assert worker.stop_profile().endswith("-1.json")
    assert taken.read_text() == "mine"


def test_start_twice_and_stop_without_start(tmp_path: Path, checkpoint: Checkpoint) -> None:
    worker = Driver(checkpoint("llama")).worker
    with pytest.raises(CommandError, match="no profile is being recorded"):
        worker.stop_profile()
    worker.start_profile(str(tmp_path))
    with pytest.raises(CommandError, match=r"already, for .*stop_profile"):
        worker.start_profile(str(tmp_path))
    worker.stop_profile()
    with pytest.raises(CommandError, match="no profile"):
        worker.stop_profile()


def test_directories_that_can_not_be(tmp_path: Path, checkpoint: Checkpoint) -> None:
    worker = Driver(checkpoint("llama")).worker
    file = tmp_path / "file"
    file.touch()
    for directory in (file, file / "below"):
        with pytest.raises(CommandError, match="can not be made"):
            worker.start_profile(str(directory))
    with pytest.raises(CommandError, match="no profile"):
        worker.stop_profile()


def test_a_directory_that_is_lost(tmp_path: Path, checkpoint: Checkpoint) -> None:
    worker = Driver(checkpoint("llama")).worker
    directory = tmp_path / "traces"
    worker.start_profile(str(directory))
    directory.rmdir()
    with pytest.raises(CommandError, match="can not be written"):
        worker.stop_profile()
    worker.start_profile(str(directory))
    assert Path(worker.stop_profile()).is_file()


def test_one_profile_in_a_process(tmp_path: Path, checkpoint: Checkpoint) -> None:
    """And shutdown ends one that runs."""
    first, second = (Driver(checkpoint("llama")).worker for _ in range(2))
    first.start_profile(str(tmp_path))
    with pytest.raises(CommandError, match="another worker"):
        second.start_profile(str(tmp_path))
    first.shutdown()
    second.start_profile(str(tmp_path))
    second.shutdown()
    assert not list(tmp_path.iterdir())
