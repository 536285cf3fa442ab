"""A fork of the launching process does not keep its engine cores, or its directories, alive."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from tests.processes.launches import LIMIT_S, Place, config, until
from tests.processes.programs import Program


def test_a_core_ends_with_its_parent_although_a_fork_of_that_lives(place: Place) -> None:
    settings = json.dumps(config(engine={"process": "separate"}))
    program = Program(place, "-m", "tests.processes.forking_program", settings)
    with program.process:
        fork = int(program.line())
        (core,) = program.children("engine-core")
        try:
            program.send(signal.SIGKILL)
            until(lambda: not Path(f"/proc/{core}").exists(), LIMIT_S)
            until(lambda: not place.runtime_dirs(), LIMIT_S)
            assert Path(f"/proc/{fork}").exists()
        finally:
            os.kill(fork, signal.SIGKILL)
