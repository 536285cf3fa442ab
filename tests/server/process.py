"""A `framework serve` process of its own, and HTTP clients of it."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil

__all__ = ["PLAIN", "Server", "eventually"]

T = TypeVar("T")
PLAIN = {
    "prompt": [1, 2, 3],
    "max_tokens": 4,
    "temperature": 0,
    "ignore_eos": True,
    "return_token_ids": True,
}
"""A request that every model answers, always the same."""
START_S = 180.0
SETTLE_S = 5.0
"""Seconds until nothing may be left of what was given up."""
GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
_SAMPLE = re.compile(r"^framework_(\w+)\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_ADDRESS = re.compile(r"serving .* at (http://\S+)")


def eventually(holds: Callable[[], Any], what: str, seconds: float = SETTLE_S) -> None:
    """Ask until `holds()` is true; AssertionError, naming `what`, when it is not in time."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.01)


class Server:
    """Started by the constructor, ended by `stop`. All requests run in one event loop."""

    def __init__(
        self, arguments: Sequence[str], log: Path, runner: asyncio.Runner, key: str = ""
    ) -> None:
        command = Path(sys.executable).with_name("framework")
        self.log = log
        """Its standard error."""
        self._runner = runner
        self._told = False
        with log.open("wb") as stream:
            self._popen = subprocess.Popen(
                [str(command), "serve", *arguments, "--serving.port", "0"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stream,
            )
        self.process = psutil.Process(self._popen.pid)
        self.url = self._address()
        self.client = httpx.AsyncClient(
            base_url=self.url,
            headers={"x-api-key": key} if key else {},
            timeout=60,
            limits=httpx.Limits(max_connections=None),
        )
        """For use within `run`."""
        self._plain = self._answer_plainly()
        self._children = self.children()
        self._seen = len(self.log.read_bytes())
        self.model: str = self.get("/v1/models").json()["data"][0]["id"]

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run to the end, in the event loop of all clients."""
        return self._runner.run(coroutine)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request."""
        return self.run(self.client.request(method, path, **options))

    def get(self, path: str) -> httpx.Response:
        """GET"""
        return self.request("GET", path)

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        """POST of JSON."""
        return self.request("POST", path, json=body, **options)

    def command(self, name: str, **arguments: Any) -> Any:
        """The result of an admin route."""
        answer = self.post(f"/admin/{name}", arguments)
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]

    def metrics(self) -> dict[str, float]:
        """See `current_metrics`."""
        return self.run(self.current_metrics())

    async def current_metrics(self) -> dict[str, float]:
        """Samples of `/metrics` by name, without prefix; those with further labels as
        `name:label value`."""
        found: dict[str, float] = {}
        for name, labels, value in _SAMPLE.findall((await self.client.get("/metrics")).text):
            kept = [v for k, v in _LABEL.findall(labels) if k not in ("engine", "model_name")]
            found[":".join([name, *kept])] = float(value)
        return found

    def children(self) -> list[int]:
        """Process ids of all descendants."""
        return sorted(child.pid for child in self.process.children(recursive=True))

    def idle(self) -> bool:
        """Whether nothing runs, waits or holds blocks."""
        metrics = self.metrics()
        return all(metrics[name] == 0 for name in GAUGES)

    def check_alive(self) -> None:
        """Nothing is left, a plain request is answered as ever, and nothing was logged as an
        unexpected failure."""
        assert self._answer_plainly() == self._plain
        eventually(self.idle, "requests or blocks are left")
        assert self.children() == self._children
        logged = self.log.read_bytes()
        new, self._seen = logged[self._seen :].decode(errors="replace"), len(logged)
        assert "Traceback" not in new, new

    def terminate(self) -> None:
        """Tell it to stop."""
        if not self._told and self._popen.poll() is None:
            self._told = True
            self.run(self.client.aclose())
            self._popen.send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """End it; its exit code."""
        self.terminate()
        try:
            return self._popen.wait(timeout=60)
        finally:
            self._popen.kill()

    def _address(self) -> str:
        found: list[str] = []

        def started() -> bool:
            text = self.log.read_text(errors="replace")
            assert self._popen.poll() is None, text
            found[:] = _ADDRESS.findall(text)
            return bool(found)

        try:
            eventually(started, f"the server did not start: {self.log}", START_S)
        except BaseException:
            self._popen.terminate()
            raise
        return found[0]

    def _answer_plainly(self) -> list[int]:
        answer = self.post("/v1/completions", PLAIN)
        assert answer.status_code == 200, answer.text
        tokens: list[int] = answer.json()["choices"][0]["token_ids"]
        assert len(tokens) == PLAIN["max_tokens"]
        return tokens
