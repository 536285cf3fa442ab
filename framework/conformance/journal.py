"""The journal of a run: what it is about, each test that begins, and what came of it. It is
written as it happens, so that it tells of a run whose process did not live to its end."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from framework.conformance.report import Report, TestEntry

__all__ = ["Journal", "Line", "Story", "read_journal"]


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened; exactly one field is given."""

    begun: Report | None = None
    """The plugin is loaded; the report has no tests yet."""
    started: tuple[str, str] | None = None
    """Suite and name of a test."""
    ended: TestEntry | None = None
    refused: tuple[str, str] | None = None
    """The run was refused: name and text of the error, as `error_to_send` gives them."""
    finished: bool = False
    """All tests were run."""


class Story(msgspec.Struct, kw_only=True):
    """What a journal tells."""

    report: Report | None = None
    """With the tests that ended; None when the plugin was not loaded."""
    running: tuple[str, str] | None = None
    """The test that had not ended."""
    refused: tuple[str, str] | None = None
    finished: bool = False


class Journal:
    """Appends lines to a file, each complete or not there. One thread."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, line: Line) -> None:
        """Append it."""
        os.write(self._file, msgspec.json.encode(line) + b"\n")


def read_journal(path: Path) -> Story:
    """What is there; a last line that was cut off is left out."""
    story, entries = Story(), []
    for text in path.read_bytes().splitlines():
        try:
            line = msgspec.json.decode(text, type=Line)
        except (msgspec.DecodeError, ValueError):
            break
        story.report = line.begun or story.report
        story.refused = line.refused or story.refused
        story.finished |= line.finished
        if line.started is not None:
            story.running = line.started
        if line.ended is not None:
            entries.append(line.ended)
            story.running = None
    if story.report is not None:
        story.report = msgspec.structs.replace(story.report, tests=tuple(entries))
    return story
