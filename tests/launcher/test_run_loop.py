"""The event loop of a server ends, whatever its front end does."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import asyncio, sys
from framework.launcher import front_end
from framework.process.exit_codes import ExitCode

front_end._CLOSE_S = 0.1

async def stubborn():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

async def main():
    task = asyncio.create_task(stubborn(), name="stubborn")
    await asyncio.sleep(0)
    return ExitCode.ENGINE_FAILED

front_end.run_loop(main())
"""


def test_a_task_that_ignores_its_cancellation_does_not_keep_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 70
    assert "stubborn" in done.stderr
