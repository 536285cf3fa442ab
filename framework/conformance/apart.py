"""`conform_apart`: the kit in a process of its own, which the plugin can not outlive.

The verdict is made here, from the journal of that process: one that ends early, by whatever code,
has failed in the test that was running.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from framework.conformance.child import LIMIT_S, Order
from framework.conformance.journal import Story, read_journal
from framework.conformance.report import Outcome, Report, TestEntry
from framework.conformance.run import plain_values
from framework.conformance.subject import Examples, Settings
from framework.process.remote_error import remote_error
from hookspecs.errors import PluginLoadError

__all__ = ["conform_apart"]


def conform_apart(
    plugin: str,
    *,
    settings: Settings,
    examples: Mapping[str, Examples],
    seed: int,
    device: str,
    only: Collection[str],
    expected_failures: Mapping[str, str],
) -> Report:
    """`conform` for an installed plugin, with the same arguments. Prints what pytest prints.

    PluginLoadError when the process ends before it has loaded the plugin. Processes that the
    plugin left behind are killed.
    """
    order = Order(
        plugin=plugin,
        settings=plain_values(settings),
        examples=plain_values(examples),
        seed=seed,
        device=device,
        only=tuple(only),
        expected_failures=dict(expected_failures),
    )
    with tempfile.TemporaryDirectory(prefix="conform-", ignore_cleanup_errors=True) as directory:
        order_file, journal = Path(directory, "order.json"), Path(directory, "journal")
        order_file.write_bytes(msgspec.json.encode(order))
        journal.touch()
        code = _run(order_file, journal, directory)
        story = read_journal(journal)
    if story.refused is not None and story.running is None:
        raise remote_error(*story.refused)
    if story.report is None:
        raise PluginLoadError(
            f"the process that loads plugin {plugin!r} to test it {_ending(code)}; what it printed "
            "is above",
            plugin=plugin,
        )
    return story.report if story.finished else _cut_short(story, story.report, code)


def _run(order: Path, journal: Path, directory: str) -> int:
    command = [sys.executable, "-m", "framework.conformance.child", str(order), str(journal)]
    child = subprocess.Popen(
        command, env={**os.environ, "TMPDIR": directory}, start_new_session=True
    )
    try:
        return child.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _cut_short(story: Story, report: Report, code: int) -> Report:
    suite, name = story.running or ("plugin", "the run")
    failure = TestEntry(
        suite=suite,
        name=name,
        outcome=Outcome.FAILED,
        reason=f"the process {_ending(code)} in this test, and the tests after it were not run",
    )
    return msgspec.structs.replace(report, tests=(*report.tests, failure))


def _ending(code: int) -> str:
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return f"{how} (or hung for {LIMIT_S:.0f} s)" if code == 1 else how
