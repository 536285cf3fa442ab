"""Stat loggers in front-end processes, of which there may be several."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec

from framework.conformance.subject import Subject
from framework.conformance.worlds.patience import PATIENCE_S
from framework.conformance.worlds.statistics import iteration_stats, scheduler_stats
from framework.plugins.boot import Boot
from framework.plugins.failure import describe
from framework.plugins.manager import PluginManager
from hookspecs.contracts.stats import StatLogger
from hookspecs.info import ProcessRole
from hookspecs.types.stats import RejectionReason

__all__ = ["main", "run_front_ends"]


class _Start(msgspec.Struct, frozen=True, kw_only=True):
    boot: Boot
    provider: str
    shared_dir: str
    process_index: int


def run_front_ends(subject: Subject, count: int, *, shared_dir: str) -> list[str]:
    """Let so many processes at once make a stat logger and use it; what each complains of,
    empty if it does not. PluginLoadError when the plugin can not be imported there."""
    boot = subject.manager().boot(ProcessRole.FRONTEND)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    children = []
    for index in range(count):
        start = _Start(
            boot=boot, provider=subject.provider, shared_dir=shared_dir, process_index=index
        )
        child = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environ,
        )
        assert child.stdin is not None
        child.stdin.write(msgspec.msgpack.encode(start))
        child.stdin.close()
        children.append(child)
    return [_answer(child) for child in children]


def _answer(child: subprocess.Popen[bytes]) -> str:
    child.stdin = None
    try:
        said, _ = child.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return f"it did not end within {PATIENCE_S:.0f} s"
    if child.returncode != 0 and not said:
        return f"it ended with the code {child.returncode}"
    return said.decode(errors="replace").strip()


def main() -> int:
    """In a front-end process: the exit code. A complaint is written to the output."""
    start = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=_Start)
    try:
        _use(start)
    except Exception as error:
        print(f"{describe(error)}", flush=True)
        return 1
    return 0


def _use(start: _Start) -> None:
    plugins = PluginManager.from_boot(start.boot)
    logger: StatLogger = plugins.create(
        "stat_logger",
        start.provider,
        engine_indexes=(0, 1),
        model="scripted",
        max_model_len=1024,
        shared_dir=start.shared_dir,
        process_index=start.process_index,
    )
    for number in range(20):
        logger.record(scheduler_stats(number), iteration_stats(number * 4), number % 2)
    logger.record_rejection(RejectionReason.DRAINING)
    logger.report()
    logger.exposition()
    logger.close()


if __name__ == "__main__":
    sys.exit(main())
