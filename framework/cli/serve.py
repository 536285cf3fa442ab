"""`framework serve`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import Final

from framework.cli.command import Command, Session
from framework.cli.engine import add_model_argument, chosen_config
from framework.cli.startup import Startup
from framework.plugins.manager import PluginManager
from hookspecs.config import PluginActivation

__all__ = ["COMMAND"]

_ROUTES: Final = "register_http_routes"


def _add_arguments(parser: ArgumentParser) -> None:
    add_model_argument(parser)


def _run(arguments: Namespace, session: Session) -> int:
    config = chosen_config(arguments, session)
    with Startup() as startup:

        def serving(address: str, plugins: PluginManager) -> None:
            startup.finish()
            for line in _service_lines(address, plugins):
                startup.report(line)
            sys.stderr.flush()

        return session.serve(
            config, report=startup.report, progress=startup.progress, serving=serving
        )


def _service_lines(address: str, plugins: PluginManager) -> list[str]:
    """Who does what, and where it is served."""
    config = plugins.config
    chosen = {
        "front end": config.serving.frontend,
        "scheduler": config.scheduler.name,
        "policies": ", ".join(config.scheduler.policies),
        "KV cache": config.cache.manager,
        "eviction": config.cache.eviction,
        "executor": config.executor.name,
        "statistics": ", ".join(config.stats.loggers) or "none",
    }
    reports = plugins.report()
    others = [
        report.name for report in reports if report.state == "active" and report.source != "builtin"
    ]
    routes = [f"/plugins/{found.ref.name}/" for found in plugins.providers("http_routes")]
    withheld = [report.name for report in reports if _ROUTES in report.withheld]
    lines = ["plugins: " + "; ".join(f"{kind} {name}" for kind, name in chosen.items())]
    if others:
        lines.append(f"other active plugins: {', '.join(others)}")
    if routes:
        lines.append(f"routes of plugins: {', '.join(routes)}")
    if withheld:
        none = config.plugins.activation == PluginActivation.NONE
        why = "plugins.activation is none" if none else "plugins.enable does not name the plugin"
        lines.append(f"routes withheld, because {why}: {', '.join(withheld)}")
    if not config.serving.api_keys and config.serving.host not in ("127.0.0.1", "::1", "localhost"):
        lines.append(
            f"warning: no serving.api_keys are set and {config.serving.host} can be reached from "
            "other machines: everyone there can use this server"
        )
    return [*lines, f"serving {config.model.name} at {address} (Ctrl-C stops)"]


COMMAND = Command(
    path=("serve",),
    help="serve a model over HTTP, by the OpenAI API",
    run=_run,
    add_arguments=_add_arguments,
)
