"""A record: what is in its file. Any process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from hookspecs.events import Event

__all__ = ["Entry", "Head", "lines"]

Entry = tuple[float, Event]
"""Wall-clock time at which the event came, in seconds, and the event."""

_ENCODER: Final = msgspec.json.Encoder()


class Head(msgspec.Struct, kw_only=True):
    """The first line: why the record was written, and by whom."""

    record: str
    """`failed` or `stopped`."""
    time: float
    """Wall clock, in seconds."""
    pid: int
    engine_index: int
    reason: str
    """Error of the engine, or why it stopped."""
    plugin: str | None
    """To which the error is attributed."""
    num_events: int
    """Lines that follow; fewer if the disk was full."""
    num_forgotten: int
    """Events before them."""


def lines(head: Head, entries: Iterable[Entry]) -> Iterator[bytes]:
    """JSON Lines, https://jsonlines.org: the head, then an object for each event, the oldest
    first: its time, its sort as `event`, and its fields."""
    yield _ENCODER.encode(head) + b"\n"
    for time, event in entries:
        fields = msgspec.structs.asdict(event)
        yield _ENCODER.encode({"time": time, "event": type(event).__name__, **fields}) + b"\n"
