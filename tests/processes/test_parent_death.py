"""An engine core whose parent is killed ends by itself and cleans up."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import framework
from framework.transport.runtime_dir import SHARED_MEMORY, sweep
from tests.processes.launches import (
    LIMIT_S,
    Place,
    config,
    drill_config,
    freeze,
    long_params,
    until,
)
from tests.processes.programs import parent, running_code


def test_an_idle_core(place: Place) -> None:
    with parent(place, config()) as program:
        program.line()
        assert len(place.runtime_dirs()) == 2
        program.send(signal.SIGKILL)
        until(place.is_clean, LIMIT_S)


def test_a_core_that_serves(place: Place) -> None:
    with parent(place, config(), streams=8) as program:
        program.line()
        program.send(signal.SIGKILL)
        until(place.is_clean, LIMIT_S)


def test_a_stopped_core_is_continued(place: Place) -> None:
    with parent(place, config(), streams=1) as program:
        (core,) = json.loads(program.line())
        freeze(core)
        program.send(signal.SIGKILL)
        until(place.is_clean, LIMIT_S)


def test_a_core_that_still_starts(place: Place, tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    settings = drill_config(drill={"start": "hang", "sign": str(sign)})
    with parent(place, settings) as program:
        until(sign.exists)
        place.look()
        program.send(signal.SIGKILL)
        until(place.is_clean, LIMIT_S)


def test_a_core_in_a_step_that_does_not_end(place: Place, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with parent(place, drill_config(drill={"block_at_step": 5, "gate": str(gate)}), streams=2) as (
        program
    ):
        program.line()
        until(Path(f"{gate}.reached").exists)
        program.send(signal.SIGKILL)
        until(place.is_clean, LIMIT_S)


def test_a_parent_that_ends_without_shutting_down(place: Place) -> None:
    """With a request that nobody reads any more."""
    code = (
        "import framework\n"
        "from tests.processes.launches import config, long_params\n"
        "engine = framework.launch(config(engine={'process': 'separate'}))\n"
        "next(engine.stream([1, 2], long_params()))\n"
    )
    with running_code(place, code) as program:
        assert program.exit_code() == 0
        until(place.is_clean, LIMIT_S)


def test_what_parent_and_core_leave_when_both_are_killed_is_swept_by_the_next_launch(
    place: Place,
) -> None:
    with parent(place, config(), streams=1) as program:
        (core,) = json.loads(program.line())
        program.send(signal.SIGSTOP)
        os.kill(core, signal.SIGKILL)
        program.send(signal.SIGKILL)
        program.exit_code()
    left = place.runtime_dirs()
    assert len(left) == 2, left
    assert {path.parent for path in left} == {place.path, SHARED_MEMORY}
    with framework.launch(config(engine={"process": "separate"})) as engine:
        assert not [path for path in left if path.exists()]
        assert len(engine.generate([[1, 2]], long_params(3))) == 1


def test_a_launch_that_lives_is_not_swept(place: Place) -> None:
    """Neither by a sweep of its own process nor by that of another launch."""
    with parent(place, config(), streams=1) as program:
        program.line()
        theirs = place.runtime_dirs()
        with framework.launch(config(engine={"process": "separate"})) as engine:
            assert sweep() == []
            assert all(path.exists() for path in theirs)
            assert len(engine.generate([[1, 2]], long_params(3))) == 1
        assert place.runtime_dirs() == theirs
