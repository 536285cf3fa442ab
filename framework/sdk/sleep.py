"""Which parts of a worker are asleep: the bookkeeping of `Worker.sleep` and `Worker.wake_up`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hookspecs.errors import CommandError, InternalError, InvalidRequestError
from hookspecs.types.control import WakeTag

__all__ = ["SleepState"]

_LEVELS: dict[int, tuple[WakeTag, ...]] = {
    1: (WakeTag.KV_CACHE,),
    2: (WakeTag.KV_CACHE, WakeTag.WEIGHTS),
}
_TAGS = (WakeTag.WEIGHTS, WakeTag.KV_CACHE)
"""In the order of waking."""


class SleepState:
    """Worker process, one thread. What falls asleep and wakes is the worker's to do; this says
    what has to."""

    def __init__(self) -> None:
        self._asleep: set[WakeTag] = set()

    def fall_asleep(self, level: int) -> Sequence[WakeTag]:
        """What a level adds to what sleeps already; it counts as asleep from now on.
        InvalidRequestError for a level other than 1 and 2."""
        if level not in _LEVELS:
            raise InvalidRequestError(
                f"level is {level!r}; a worker sleeps at level 1 (no KV cache) or 2 (no KV cache "
                "and no weights)",
                param="level",
                value=level,
            )
        added = [tag for tag in _LEVELS[level] if tag not in self._asleep]
        self._asleep.update(added)
        return added

    def to_wake(self, tags: Iterable[str]) -> Sequence[WakeTag]:
        """Those of `tags` that are asleep, in the order in which to wake them. Each is asleep
        until `woke` is told. InvalidRequestError for what is no tag of a worker."""
        wanted = list(tags)
        unknown = [tag for tag in wanted if tag not in _TAGS]
        if unknown:
            raise InvalidRequestError(
                f"a worker can not wake {unknown[0]!r}; its tags are {', '.join(_TAGS)}",
                param="tags",
                value=unknown[0],
            )
        return [tag for tag in _TAGS if tag in wanted and tag in self._asleep]

    def woke(self, tag: WakeTag) -> None:
        """It is back."""
        self._asleep.discard(tag)

    def check_step(self) -> None:
        """InternalError while anything is asleep: the kernel must not run a step."""
        if self._asleep:
            raise InternalError(f"a step was sent to a worker whose {self._names()} sleep")

    def check_weights(self) -> None:
        """CommandError while the weights are asleep."""
        if WakeTag.WEIGHTS in self._asleep:
            raise CommandError(
                "the weights are asleep and can not be replaced; wake them first (wake_up with "
                f"the tag {WakeTag.WEIGHTS})"
            )

    def _names(self) -> str:
        return " and ".join(tag for tag in _TAGS if tag in self._asleep)
