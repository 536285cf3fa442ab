"""Questions and answers as JSON lines, over standard input and output.

Standard library only: scripts run in environments that have nothing of this project. What an
engine itself prints goes to standard error.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any


class Lines:
    """Takes standard output for itself; make it before the engine is imported."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def put(self, value: dict[str, Any]) -> None:
        """A line."""
        self._out.write(json.dumps(value) + "\n")
        self._out.flush()

    def ready(self, **facts: Any) -> None:
        """Say what is here, with the seconds since this process began."""
        self.put({**facts, "start_s": since_start()})

    def answer(self, ask: Callable[[dict[str, Any]], dict[str, Any]], **facts: Any) -> None:
        """Be ready; then answer each line until there are no more."""
        self.ready(**facts)
        for line in sys.stdin:
            self.put(ask(json.loads(line)))


def since_start() -> float:
    """Seconds since this process began (Linux)."""
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def timed(generate: Callable[..., list[list[int]]], *arguments: Any) -> dict[str, Any]:
    """The answer to a question for tokens: seconds, and the ids of each output."""
    begin = time.perf_counter()
    tokens = generate(*arguments)
    return {"seconds": time.perf_counter() - begin, "tokens": tokens}
