"""The pytest session of the zero-code form: the suites as test classes, outcomes as entries."""

from __future__ import annotations

import contextlib
import io
import os
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from framework.conformance.base import NOT_DECLARED, Conformance, binding
from framework.conformance.catalogue import Run
from framework.conformance.journal import Journal, Line
from framework.conformance.report import Outcome, TestEntry
from framework.conformance.subject import PluginSubject
from hookspecs.errors import ConfigError, InternalError
from hookspecs.version import API_VERSION

__all__ = ["run_suites"]

_COLLECTED: Final = Path(__file__).with_name("collected.py")
"""The file that pytest collects; what is in it is given by `_Session`."""
_ENVIRONMENT: Final = {
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_ADDOPTS": None,
    "PYTEST_PLUGINS": None,
}
"""What pytest must not find there: it could leave out tests, or change them."""


def run_suites(
    runs: Sequence[Run],
    *,
    seed: int,
    device: str = "cpu",
    only: Collection[str] = (),
    expected_failures: Mapping[str, str],
    quiet: bool = False,
    journal: Journal | None = None,
) -> list[TestEntry]:
    """Every test of every run, in order. `only`: names of tests, all when empty. `quiet`: print
    nothing. ConfigError when `only` or `expected_failures` name a test that there is not.

    Pytest runs in this process, with none of the plugins that are installed for it.
    """
    _check_names(runs, only, expected_failures)
    session = _Session(runs, seed, device, frozenset(only), expected_failures, journal)
    arguments = [
        str(_COLLECTED),
        f"--rootdir={_COLLECTED.parent}",
        f"--config-file={os.devnull}",
        "--import-mode=importlib",
        "--tb=short",
        # What a plugin prints has no bound.
        "--show-capture=log",
        "-q",
        "-p",
        "no:cacheprovider",
        # It collects garbage at the end of every session, which takes longer than many tests.
        "-p",
        "no:unraisableexception",
    ]
    with _alone(), _silence() if quiet else contextlib.nullcontext():
        code = pytest.main(arguments, plugins=[session])
    if code == pytest.ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    missing = session.missing()
    if missing or code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise InternalError(
            f"pytest ended with {code!r}, and these tests were not run: {_list(missing) or 'none'}"
        )
    return session.entries


def _check_names(
    runs: Sequence[Run], only: Collection[str], expected_failures: Mapping[str, str]
) -> None:
    tests = {f"{run.label}::{name}" for run in runs for name in run.suite.cases()}
    names = {test.rpartition("::")[2] for test in tests}
    for name in only:
        if name not in names:
            raise ConfigError(f"no test {name!r} runs for this plugin; there are: {_list(names)}")
    for test in expected_failures:
        if test not in tests:
            raise ConfigError(
                f"expected_failures names {test!r}, which does not run for this plugin; there "
                f"are: {_list(tests)}"
            )


def _list(names: Collection[str]) -> str:
    return ", ".join(sorted(names))


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    before = {name: os.environ.pop(name, None) for name in _ENVIRONMENT}
    os.environ.update({name: text for name, text in _ENVIRONMENT.items() if text is not None})
    try:
        yield
    finally:
        for name, text in before.items():
            os.environ.pop(name, None)
            if text is not None:
                os.environ[name] = text


def _silence() -> contextlib.redirect_stdout[io.StringIO]:
    return contextlib.redirect_stdout(io.StringIO())


class _Session:
    """Given to pytest as a plugin."""

    def __init__(
        self,
        runs: Sequence[Run],
        seed: int,
        device: str,
        only: frozenset[str],
        expected_failures: Mapping[str, str],
        journal: Journal | None,
    ) -> None:
        self._journal = journal
        self.entries: list[TestEntry] = []
        # The name that pytest prints; it collects what begins with "Test".
        self._runs = {f"Test {run.label}": run for run in runs}
        self._seed = seed
        self._device = device
        self._only = only
        self._expected = expected_failures

    def missing(self) -> list[str]:
        """Tests that should have been run, and were not."""
        ran = {(entry.suite, entry.name.partition("[")[0]) for entry in self.entries}
        return [
            f"{run.label}::{name}"
            for run in self._runs.values()
            for name in run.suite.cases()
            if (run.label, name) not in ran and (not self._only or name in self._only)
        ]

    def pytest_configure(self, config: pytest.Config) -> None:
        config.conform_seed = self._seed  # type: ignore[attr-defined]
        config.conform_device = self._device  # type: ignore[attr-defined]

    def pytest_report_header(self) -> str:
        labels = ", ".join(run.label for run in self._runs.values())
        return f"conformance kit, seed {self._seed}: {labels}"

    def pytest_pycollect_makemodule(
        self, module_path: Path, parent: pytest.Collector
    ) -> pytest.Module | None:
        if module_path != _COLLECTED:
            return None
        module = pytest.Module.from_parent(parent, path=module_path)
        namespace = types.ModuleType("conformance")
        vars(namespace).update({name: _class_of(run) for name, run in self._runs.items()})
        module.obj = namespace
        return module

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._only:
            items[:] = [item for item in items if _name_of(item) in self._only]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Iterator[None]:
        self._reports: list[pytest.TestReport] = []
        if self._journal is not None:
            cls = item.getparent(pytest.Class)
            label = self._runs[cls.name].label if cls is not None else ""
            self._journal.write(Line(started=(label, item.name)))
        # What ends pytest ends the test without an entry.
        result = yield
        self.entries.append(self._entry(item, self._reports))
        if self._journal is not None:
            self._journal.write(Line(ended=self.entries[-1]))
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)

    def _entry(self, item: pytest.Item, reports: Sequence[pytest.TestReport]) -> TestEntry:
        cls = item.getparent(pytest.Class)
        assert cls is not None
        run, name = self._runs[cls.name], _name_of(item)
        failed = next((report for report in reports if report.failed), None)
        skipped = next((report for report in reports if report.skipped), None)
        explained = f"{run.label}::{name}" in self._expected
        outcome, reason = Outcome.PASSED, ""
        if failed is not None:
            outcome, reason = Outcome.FAILED, _reason(failed)
            if explained:
                outcome, reason = Outcome.EXPECTED, self._expected[f"{run.label}::{name}"]
            elif not binding(getattr(run.suite, name), API_VERSION):
                outcome = Outcome.ADVISORY
        elif skipped is not None:
            reason = _skip_reason(skipped)
            outcome = Outcome.SKIPPED
            if reason.startswith(NOT_DECLARED):
                outcome, reason = Outcome.NOT_DECLARED, reason.removeprefix(NOT_DECLARED)
        elif explained:
            outcome, reason = Outcome.UNEXPECTED, self._expected[f"{run.label}::{name}"]
        return TestEntry(
            suite=run.label,
            name=item.name,
            outcome=outcome,
            seconds=round(sum(report.duration for report in reports), 3),
            reason=reason,
        )


def _class_of(run: Run) -> type[Conformance]:
    def subject(self: Conformance) -> PluginSubject:
        return run.subject

    fixture: Callable[..., Any] = pytest.fixture(subject)
    return type(
        run.suite.__name__, (run.suite,), {"subject": fixture, "__doc__": run.suite.__doc__}
    )


def _name_of(item: pytest.Item) -> str:
    return getattr(item, "originalname", None) or item.name


def _reason(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(getattr(crash, "message", report.longrepr))


def _skip_reason(report: pytest.TestReport) -> str:
    longrepr = report.longrepr
    text = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    return text.removeprefix("Skipped: ")
