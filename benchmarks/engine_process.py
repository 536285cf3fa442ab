"""An engine in a process of its own, asked over standard input: ours and peers alike.

An engine that is not asked is stopped, threads that spin included, so that repeats of several can
be taken in turn.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from benchmarks.peers import Installed

__all__ = ["EngineProcess", "our_tokens", "peer_process"]

_STOP_S = 30.0


class EngineProcess:
    """`with` it: the engine is loaded inside, or RuntimeError says why not, with the end of what
    it printed."""

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.facts: dict[str, Any] = {}
        """What it said of itself: `version`, `start_s` (to the first token), and others."""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (until `stop`)
        self._process = subprocess.Popen(
            command,
            env=environment,
            cwd=Path(__file__).parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def __enter__(self) -> Self:
        try:
            self.facts = self._read()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer. RuntimeError when the process ends instead."""
        assert self._process.stdin is not None
        self._process.send_signal(signal.SIGCONT)
        self._process.stdin.write(msgspec.json.encode(question) + b"\n")
        self._process.stdin.flush()
        return self._read()

    def stop(self) -> None:
        """End it. Safe to call twice."""
        assert self._process.stdin is not None
        self._process.send_signal(signal.SIGCONT)
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            self._process.send_signal(signal.SIGSTOP)
            return msgspec.json.decode(line, type=dict[str, Any])
        self._log.seek(0)
        told = self._log.read()[-3000:].decode("utf-8", "replace")
        raise RuntimeError(f"{self.name} ended:\n{told}")


def our_tokens(name: str, settings: Mapping[str, Any]) -> EngineProcess:
    """This project's engine, by `framework.launch` with `settings`."""
    text = msgspec.json.encode(settings).decode()
    return EngineProcess(name, [sys.executable, "-m", "benchmarks.own_tokens", text])


def peer_process(peer: Installed, script: str, *arguments: str, name: str = "") -> EngineProcess:
    """A peer, by a script of peer_scripts/."""
    command = peer.command(script, *arguments)
    return EngineProcess(name or peer.peer.name, command, peer.environment())
