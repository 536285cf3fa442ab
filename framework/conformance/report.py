"""The product of a run: `conform.json`, its summary as Markdown, a badge."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec

__all__ = [
    "BADGE_FILE",
    "MARKDOWN_FILE",
    "REPORT_FILE",
    "Outcome",
    "ProviderEntry",
    "Report",
    "TestEntry",
    "Verdict",
    "read_report",
    "same_claims",
    "write_report",
]

REPORT_FILE: Final = "conform.json"
MARKDOWN_FILE: Final = "conform.md"
BADGE_FILE: Final = "badge.json"
_MARKS: Final = {
    "passed": "passed",
    "failed": "**FAILED**",
    "advisory": "failed (advisory)",
    "expected": "failed as expected",
    "unexpected": "**passed, expected to fail**",
    "not_declared": "not declared",
    "skipped": "**skipped**",
}


class Outcome(StrEnum):
    """What became of one test."""

    PASSED = "passed"
    FAILED = "failed"
    ADVISORY = "advisory"
    """It failed, and it is too new to count."""
    EXPECTED = "expected"
    """It failed, and `conform.toml` says why."""
    UNEXPECTED = "unexpected"
    """It passed, though `conform.toml` says that it fails."""
    NOT_DECLARED = "not_declared"
    """It tests a capability that the provider does not declare."""
    SKIPPED = "skipped"
    """For any other reason, which there must not be."""


class Verdict(StrEnum):
    """What the report claims."""

    CONFORMANT = "conformant"
    INCOMPLETE = "incomplete"
    """No failure, but only some of the tests were run, or the kit has no suite for a provider."""
    WITH_EXCEPTIONS = "conformant with exceptions"
    """But for failures that `conform.toml` explains."""
    NOT_CONFORMANT = "not conformant"


class ProviderEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One provider of the plugin."""

    kind: str
    name: str
    capabilities: tuple[str, ...]


class TestEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One test."""

    __test__ = False

    suite: str
    """`plugin`, `observers`, `filters`, `wrappers` or `kind:provider`."""
    name: str
    outcome: Outcome
    seconds: float = 0.0
    reason: str = ""
    """Why it failed, or was not run."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one run."""

    plugin: str
    distribution: str | None
    version: str | None
    api: str
    """Contract versions that the plugin was written for."""
    kit: str
    """The kit's version, which is that of the contract."""
    environment: dict[str, str]
    """Versions of what it ran on; no part of the claim."""
    seed: int
    device: str
    """Where suites of what computes with torch put their tensors."""
    settings: dict[str, Any]
    """The configuration that was given."""
    examples: dict[str, Any]
    """What was given by `kind:provider`."""
    providers: tuple[ProviderEntry, ...]
    untested: tuple[str, ...]
    """`kind:provider` for which the kit has no suite."""
    only: tuple[str, ...] = ()
    """The tests that were asked for; empty: all."""
    tests: tuple[TestEntry, ...]

    @property
    def verdict(self) -> Verdict:
        """Conformant only with no failure and no unexplained skip."""
        outcomes = {test.outcome for test in self.tests}
        if not outcomes or outcomes & {Outcome.FAILED, Outcome.UNEXPECTED, Outcome.SKIPPED}:
            return Verdict.NOT_CONFORMANT
        if self.only or self.untested:
            return Verdict.INCOMPLETE
        return Verdict.WITH_EXCEPTIONS if Outcome.EXPECTED in outcomes else Verdict.CONFORMANT

    @property
    def claim(self) -> str:
        """The verdict with the version of the contract, e.g. `conformant 1.0`."""
        return f"{self.verdict} {self.kit}"

    @property
    def failures(self) -> list[TestEntry]:
        """What keeps it from being conformant."""
        wrong = (Outcome.FAILED, Outcome.UNEXPECTED, Outcome.SKIPPED)
        return [test for test in self.tests if test.outcome in wrong]


def write_report(report: Report, directory: Path) -> list[Path]:
    """The three files; the directory is made."""
    directory.mkdir(parents=True, exist_ok=True)
    files = {
        REPORT_FILE: _json(report),
        MARKDOWN_FILE: _markdown(report),
        BADGE_FILE: _badge(report),
    }
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
    return [directory / name for name in files]


def read_report(directory: Path) -> Report:
    """What `write_report` wrote. OSError, msgspec.ValidationError."""
    data = msgspec.json.decode((directory / REPORT_FILE).read_bytes())
    data.pop("verdict", None)
    return msgspec.convert(data, Report)


def same_claims(first: Report, second: Report) -> bool:
    """Whether two reports claim the same: all but time and place."""
    return _claims(first) == _claims(second)


def _claims(report: Report) -> Report:
    tests = tuple(msgspec.structs.replace(test, seconds=0.0) for test in report.tests)
    return msgspec.structs.replace(report, environment={}, tests=tests)


def _json(report: Report) -> str:
    data = {"verdict": report.claim, **msgspec.to_builtins(report)}
    return msgspec.json.format(msgspec.json.encode(data), indent=1).decode() + "\n"


def _badge(report: Report) -> str:
    """In the form that shields.io reads from an address (its "endpoint" badge)."""
    colors = {
        Verdict.CONFORMANT: "brightgreen",
        Verdict.WITH_EXCEPTIONS: "yellow",
        Verdict.INCOMPLETE: "lightgrey",
        Verdict.NOT_CONFORMANT: "red",
    }
    badge = {
        "schemaVersion": 1,
        "label": "engine-framework plugin",
        "message": report.claim,
        "color": colors[report.verdict],
    }
    return msgspec.json.format(msgspec.json.encode(badge), indent=1).decode() + "\n"


def _markdown(report: Report) -> str:
    source = f"{report.distribution} {report.version}" if report.distribution else "local object"
    lines = [
        f"# {report.plugin}: {report.claim}",
        "",
        f"Plugin `{report.plugin}` ({source}), written for the plugin API `{report.api}`, tested "
        f"by the conformance kit {report.kit} with seed {report.seed}.",
        "",
    ]
    for suite, tests in _by_suite(report.tests).items():
        passed = sum(test.outcome is Outcome.PASSED for test in tests)
        lines += [f"## {suite}", "", *_declared(report, suite), f"{passed} passed of {len(tests)}."]
        lines += ["", "| test | outcome |", "| --- | --- |"]
        lines += [f"| `{test.name}` | {_cell(test)} |" for test in tests]
        lines.append("")
    if report.untested:
        lines += [f"Not tested, for the kit has no suite yet: {', '.join(report.untested)}.", ""]
    return "\n".join(lines)


def _declared(report: Report, suite: str) -> list[str]:
    for provider in report.providers:
        if f"{provider.kind}:{provider.name}" == suite:
            names = ", ".join(f"`{name}`" for name in provider.capabilities) or "none"
            return [f"Capabilities: {names}.", ""]
    return []


def _by_suite(tests: Sequence[TestEntry]) -> dict[str, list[TestEntry]]:
    suites: dict[str, list[TestEntry]] = {}
    for test in tests:
        suites.setdefault(test.suite, []).append(test)
    return suites


def _cell(test: TestEntry) -> str:
    text = _MARKS[test.outcome]
    if test.reason and test.outcome is not Outcome.NOT_DECLARED:
        # As code, so that nothing in a plugin's message is taken for Markdown or HTML.
        first = test.reason.strip().splitlines()[0][:200].replace("`", "'").replace("|", "\u00a6")
        return f"{text}: `{first}`"
    return text
