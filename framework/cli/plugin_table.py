"""Plugin reports as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from framework.cli.output import print_table
from framework.plugins.report import PluginReport

__all__ = ["print_plugins"]

COLUMNS = (
    "name",
    "state",
    "source",
    "distribution",
    "api",
    "providers",
    "hooks",
    "calls",
    "errors",
)


def print_plugins(reports: Sequence[PluginReport]) -> None:
    """One row a plugin; below the table, why a plugin is broken or disabled."""
    print_table(COLUMNS, [_row(report) for report in reports])
    for report in reports:
        if report.error is not None:
            print(f"{report.name} is {report.state}: {report.error}")


def _row(report: PluginReport) -> list[str]:
    return [
        report.name,
        str(report.state),
        str(report.source),
        " ".join(part for part in (report.distribution, report.version) if part),
        report.api,
        "\n".join(report.providers),
        "\n".join([*report.hooks, *(f"{hook} (withheld)" for hook in report.withheld)]),
        _total(report.calls),
        _total(report.errors),
    ]


def _total(by_hook: Mapping[str, int]) -> str:
    return str(sum(by_hook.values()))
