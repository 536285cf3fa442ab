"""A peer's OpenAI-compatible server as a child process, on a free port of loopback."""

from __future__ import annotations

import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from benchmarks.peers import Installed

__all__ = ["PeerServed"]

_START_S = 300.0
_STOP_S = 30.0


class PeerServed:
    """`with` it: vLLM's server takes requests inside. `options` are of its command line;
    `stub` puts an executor without a model in the model's place."""

    def __init__(
        self, peer: Installed, model: Path, options: Sequence[str] = (), *, stub: bool = False
    ) -> None:
        self.url = f"http://127.0.0.1:{_free_port()}"
        # The executor in the engine's process is the fastest arrangement for one processor.
        executor = "vllm_stub.StubExecutor" if stub else "uni"
        command = [
            str(peer.python),
            "-m",
            "vllm.entrypoints.openai.api_server",
            f"--model={model}",
            f"--port={self.url.rpartition(':')[2]}",
            "--host=127.0.0.1",
            "--dtype=float32",
            "--max-model-len=2048",
            f"--distributed-executor-backend={executor}",
            "--disable-log-stats",
            "--disable-uvicorn-access-log",
            *options,
        ]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (until `stop`)
        self._process = subprocess.Popen(
            command,
            env=peer.environment(),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )

    def __enter__(self) -> Self:
        end = time.monotonic() + _START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                self._log.seek(0)
                told = self._log.read()[-3000:].decode("utf-8", "replace")
                self.stop()
                raise RuntimeError(f"the peer's server did not start:\n{told}")
            time.sleep(0.5)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def processes(self) -> list[psutil.Process]:
        """The process and all below it, from the one with most memory on: the engine's."""
        own = psutil.Process(self._process.pid)
        below = own.children(recursive=True)
        below.sort(key=lambda process: process.memory_info().rss, reverse=True)
        return [own, *below]

    def stop(self) -> None:
        """SIGTERM, and what is left after a while is killed. Safe to call twice."""
        if self._process.poll() is None:
            processes = self.processes()
            self._process.send_signal(signal.SIGTERM)
            _, left = psutil.wait_procs(processes, _STOP_S)
            for process in left:
                process.kill()
            self._process.wait()
        self._log.close()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
