"""The page. Every value goes through `escape`: names and messages come from anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

from queue_dashboard.status import Status

__all__ = ["render"]

_STYLE: Final = (
    "body{font:16px/1.4 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}"
    "table{border-collapse:collapse}"
    "th,td{border-bottom:1px solid #bbb;padding:.2rem .8rem .2rem 0;text-align:left}"
)


def render(status: Status) -> str:
    """A whole HTML document that loads nothing."""
    title = f"{escape(status.model)}: {_health(status)}"
    sections = [
        _section("Server", _server(status)),
        _section("Engines", _engines(status)),
        _section("Finished requests", _finished(status)),
        _section("Plugins", _plugins(status)),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_STYLE}</style></head>\n"
        f"<body><h1>{title}</h1>\n{''.join(sections)}</body></html>\n"
    )


def _health(status: Status) -> str:
    if status.health.ready:
        return "ready"
    state = "not ready" if status.health.live else "dead"
    return f"{state} ({escape(status.health.reason)})" if status.health.reason else state


def _server(status: Status) -> str:
    started = datetime.fromtimestamp(status.started_at, UTC).isoformat(" ", "seconds")
    versions = f"{status.version}, plugin API {status.api_version}"
    return _table((), [("version", versions), ("started", started)])


def _engines(status: Status) -> str:
    if status.engines_error is not None:
        return f"<p>{escape(status.engines_error)}</p>\n"
    keys = ("engine_index", "state", "num_running", "num_waiting", "step")
    rows = [[engine[key] for key in keys] for engine in status.engines]
    return _table(("engine", "state", "running", "waiting", "steps"), rows)


def _finished(status: Status) -> str:
    if status.finished is None:
        return "<p>not counted: <code>serving.stat_loggers</code> lacks <code>prometheus</code></p>"
    return _table(("reason", "outputs"), status.finished.items())


def _plugins(status: Status) -> str:
    rows = [(p.name, p.state, p.calls, p.errors, p.error or "") for p in status.plugins]
    return _table(("plugin", "state", "calls", "errors", "why"), rows)


def _section(heading: str, content: str) -> str:
    return f"<h2>{escape(heading)}</h2>\n{content}"


def _table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    lines = ("".join(f"<td>{escape(str(value))}</td>" for value in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>\n" for line in lines)
    return f"<table><tr>{head}</tr>\n{body}</table>\n"
