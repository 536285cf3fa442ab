"""Configurations, and what a launch has in the system: processes, directories, shared memory."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from framework import OutputKind, SamplingParams
from framework.transport.runtime_dir import SHARED_MEMORY

__all__ = ["LIMIT_S", "Place", "config", "drill_config", "freeze", "long_params", "until"]

LIMIT_S: Final = 2.0
"""Within so many seconds of a death everything that waited for it has ended."""
PATIENCE_S: Final = 20.0
"""For what has no limit of its own: a slow machine is no failure."""


def config(**sections: Mapping[str, Any]) -> dict[str, Any]:
    """The scripted model; sections override."""
    settings: dict[str, Any] = {
        "model": {"name": "scripted"},
        "executor": {"worker": "scripted"},
        "stats": {"loggers": []},
        "serving": {"stat_loggers": [], "port": 0},
        "engine": {"start_timeout_s": PATIENCE_S},
    }
    for section, values in sections.items():
        settings[section] = {**settings.get(section, {}), **values}
    return settings


def drill_config(
    *, drill: Mapping[str, Any] | None = None, **sections: Mapping[str, Any]
) -> dict[str, Any]:
    """`config` with the worker of `plugins_for_tests`, which gets the options `drill`."""
    sections.setdefault("executor", {"worker": "drill"})
    settings = config(**sections)
    settings["plugins"] = {"options": {"drill": dict(drill or {})}}
    return settings


def long_params(max_tokens: int = 4000, **fields: Any) -> SamplingParams:
    """Does not end by itself soon; outputs bring what is new."""
    fields.setdefault("output_kind", OutputKind.DELTA)
    fields.setdefault("temperature", 0)
    return SamplingParams(max_tokens=max_tokens, ignore_eos=True, detokenize=False, **fields)


def until(holds: Callable[[], Any], limit_s: float = PATIENCE_S) -> None:
    """Wait for something that other processes do; an AssertionError when it takes too long."""
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline, f"{holds} does not hold within {limit_s} s"
        time.sleep(0.005)


def freeze(pid: int) -> None:
    """SIGSTOP, and wait until no thread runs any more."""
    os.kill(pid, signal.SIGSTOP)

    def stopped() -> bool:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return all((task / "stat").read_text().rpartition(") ")[2][0] == "T" for task in tasks)

    until(stopped)


class Place:
    """The directory for temporary files of one test. Processes that were started by the test are
    known by having it in their environment."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: set[str] = set()

    @property
    def environment(self) -> dict[str, str]:
        """Of a process that belongs to the test."""
        kept = {k: v for k, v in os.environ.items() if k != "XDG_RUNTIME_DIR"}
        return {**kept, "TMPDIR": str(self.path)}

    def runtime_dirs(self) -> list[Path]:
        """All of both kinds that are there now, of all launches of which `look` saw one."""
        self.look()
        shared = [SHARED_MEMORY / name for name in self._seen]
        return [*self.path.glob("framework-*"), *(path for path in shared if path.exists())]

    def look(self) -> None:
        """Remember the names of the launches that are there now."""
        self._seen.update(path.name for path in self.path.glob("framework-*"))

    def note(self, name: str) -> None:
        """Remember a launch's name."""
        self._seen.add(name)

    def processes(self) -> list[int]:
        """Those that run; not this one, and no zombies."""
        mark = b"TMPDIR=" + os.fsencode(self.path)
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
                except OSError:
                    continue  # it has ended
        return found

    def is_clean(self) -> bool:
        """Whether nothing is left."""
        return not self.processes() and not self.runtime_dirs()
