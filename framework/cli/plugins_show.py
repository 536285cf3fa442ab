"""`framework plugins show NAME`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from framework.cli.command import Command, Session
from framework.cli.output import add_json_flag, print_json
from framework.config import suggestion
from framework.plugins.manager import PluginManager
from framework.plugins.report import PluginReport
from hookspecs.errors import ConfigError

__all__ = ["COMMAND"]


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the plugin's name")
    add_json_flag(parser)


def _run(arguments: Namespace, session: Session) -> int:
    report = _find(PluginManager.build(session.config).report(), arguments.name)
    if arguments.json:
        print_json(report)
    else:
        print("\n".join(_lines(report)))
    return 0


def _find(reports: Sequence[PluginReport], name: str) -> PluginReport:
    for report in reports:
        if report.name == name:
            return report
    names = sorted(report.name for report in reports)
    raise ConfigError(
        f"no plugin is called {name!r}.{suggestion(name, names)} Installed: {', '.join(names)}."
    )


def _lines(report: PluginReport) -> list[str]:
    origin = " ".join(part for part in (report.distribution, report.version) if part)
    lines = [
        f"{report.name}: {report.description}" if report.description else report.name,
        f"  state      {report.state}" + (f": {report.error}" if report.error else ""),
        f"  source     {report.source}" + (f", {origin}" if origin else ""),
        f"  api        {report.api or 'unknown'}",
        f"  processes  {', '.join(report.roles) or 'unknown'}",
        *(f"  provides   {provider}" for provider in report.providers),
    ]
    for hook in report.hooks:
        calls, errors = report.calls.get(hook, 0), report.errors.get(hook, 0)
        lines.append(f"  hook       {hook} ({calls} calls, {errors} errors)")
    lines += [
        f"  withheld   {hook} (see plugins.enable and plugins.activation)"
        for hook in report.withheld
    ]
    return lines


COMMAND = Command(
    path=("plugins", "show"),
    help="all about one plugin",
    run=_run,
    add_arguments=_add_arguments,
)
