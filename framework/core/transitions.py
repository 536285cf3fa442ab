"""What each control operation does in each state: the one table from which the engine core's
checks and `docs/control.md` are made."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

from hookspecs.types.control import EngineState as S

__all__ = ["LATE_REFUSALS", "TRANSITIONS", "Operation", "Outcome", "Transition"]


class Operation(StrEnum):
    """A control command, told apart further where its arguments decide what happens."""

    GET_STATUS = "get_status"
    PAUSE_ABORT = "pause(abort)"
    PAUSE_WAIT = "pause(wait)"
    PAUSE_KEEP = "pause(keep)"
    RESUME = "resume"
    SLEEP_ABORT = "sleep(abort)"
    SLEEP_WAIT = "sleep(wait)"
    SLEEP_KEEP = "sleep(keep)"
    WAKE_MEMORY = "wake_up(memory)"
    """With tags, among which `scheduling` is not."""
    WAKE_UP = "wake_up"
    """Without tags, or with `scheduling` among them."""
    RESET_PREFIX_CACHE = "reset_prefix_cache"
    UPDATE_WEIGHTS = "update_weights"
    DRAIN = "drain"
    WORKERS = "start_profile, stop_profile, collective_rpc"
    ADAPTERS = "list_adapters, load_adapter, unload_adapter"
    PLUGIN = "plugin_command"


class Outcome(StrEnum):
    """What an operation comes to in a state."""

    DONE = "done"
    NOTHING = "nothing to do"
    """It answers at once, and nothing changes."""
    REFUSED = "refused"
    """It fails, and nothing changes."""


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """One operation in one state."""

    operation: Operation
    state: S
    outcome: Outcome
    next: S
    """The state as soon as it was called."""
    then: S
    """The state when it answers; that of `next` if it answers at once."""
    refusal: str = ""
    """The error text of one that is refused; of one that is done, if a condition does not hold."""
    running: str
    """What becomes of requests that have started."""
    waiting: str
    """What becomes of requests that have not."""
    half_arrived: str
    """What becomes of requests that are being decoded on their way in."""
    late: str
    """What becomes of requests that are sent after it."""


LATE_REFUSALS: Final[dict[S, str]] = {
    S.SLEEPING: "the engine is sleeping and takes no requests; call wake_up first",
    S.WAKING: "the engine is waking and takes no requests yet; call wake_up for what is asleep",
    S.DRAINING: "the engine is draining and takes no more requests; use another engine, or call "
    "resume",
}
"""State to the error with which a request ends that arrives in it."""

_LATE: Final[dict[S, str]] = {
    S.RUNNING: "run",
    S.PAUSING: "wait",
    S.PAUSED: "wait",
    S.SLEEPING: "end with `error`",
    S.WAKING: "end with `error`",
    S.DRAINING: "end with `error`",
    S.STOPPED: "fail with EngineDeadError",
    S.DEAD: "fail with EngineDeadError",
}
_ALIVE: Final = (S.RUNNING, S.PAUSING, S.PAUSED, S.SLEEPING, S.WAKING, S.DRAINING)
_GONE: Final = (S.STOPPED, S.DEAD)
_PAUSES: Final = (Operation.PAUSE_ABORT, Operation.PAUSE_WAIT, Operation.PAUSE_KEEP)
_SLEEPS: Final = (Operation.SLEEP_ABORT, Operation.SLEEP_WAIT, Operation.SLEEP_KEEP)
_AS_BEFORE = "as before"
_STAYS_ASLEEP = (
    "{asleep} would stay asleep, so nothing can be scheduled; name it too, give no tags, or leave "
    "scheduling out"
)
_DRAINS = "the engine is draining; call resume to take requests again"


def _done(
    operation: Operation,
    state: S,
    to: S,
    running: str,
    waiting: str,
    *,
    then: S | None = None,
    refusal: str = "",
    late: str = "",
) -> Transition:
    after = to if then is None else then
    if not late:
        late = _LATE[after]
        if _LATE.get(to, late) != late:
            late = f"{_LATE[to]}; once {after}, {late}"
    return Transition(
        operation=operation,
        state=state,
        outcome=Outcome.DONE,
        next=to,
        then=after,
        refusal=refusal,
        running=running,
        waiting=waiting,
        half_arrived=late,
        late=late,
    )


def _unchanged(operation: Operation, state: S, refusal: str = "") -> Transition:
    return Transition(
        operation=operation,
        state=state,
        outcome=Outcome.REFUSED if refusal else Outcome.NOTHING,
        next=state,
        then=state,
        refusal=refusal,
        running=_AS_BEFORE,
        waiting=_AS_BEFORE,
        half_arrived=_LATE[state],
        late=_LATE[state],
    )


def _all() -> Iterator[Transition]:
    for operation in Operation:
        for state in _GONE:
            if operation is Operation.GET_STATUS:
                yield _unchanged(operation, state)
            else:
                yield _unchanged(
                    operation, state, f"the engine core is {state}; it takes no more commands"
                )
    for state in _ALIVE:
        yield _unchanged(Operation.GET_STATUS, state)
    yield from _pause()
    yield from _resume()
    yield from _sleep()
    yield from _wake_up()
    yield from _maintain()
    yield from _drain()


def _pause() -> Iterator[Transition]:
    again = "end with `abort`, unless it was paused with abort already"
    for state in (S.RUNNING, S.PAUSING):
        yield _done(Operation.PAUSE_ABORT, state, S.PAUSED, "end with `abort`", "end with `abort`")
        yield _done(
            Operation.PAUSE_WAIT,
            state,
            S.PAUSING,
            "run to their end",
            "wait for resume",
            then=S.PAUSED,
        )
        yield _done(Operation.PAUSE_KEEP, state, S.PAUSED, "freeze until resume", "wait for resume")
    for state in (S.PAUSED, S.SLEEPING, S.WAKING):
        yield _done(Operation.PAUSE_ABORT, state, state, again, again)
        for operation in (Operation.PAUSE_WAIT, Operation.PAUSE_KEEP):
            yield _done(operation, state, state, "stay frozen", "go on waiting")
    for operation in _PAUSES:
        yield _unchanged(operation, S.DRAINING, _DRAINS)


def _resume() -> Iterator[Transition]:
    yield _unchanged(Operation.RESUME, S.RUNNING)
    for state in (S.PAUSING, S.PAUSED):
        yield _done(Operation.RESUME, state, S.RUNNING, "go on", "run")
    for state in (S.SLEEPING, S.WAKING):
        yield _unchanged(Operation.RESUME, state, f"the engine is {state}; call wake_up")
    yield _done(
        Operation.RESUME,
        S.DRAINING,
        S.RUNNING,
        "go on",
        "run",
        refusal="{asleep} would stay asleep, so nothing can be scheduled; call wake_up",
    )


def _sleep() -> Iterator[Transition]:
    for state in (S.RUNNING, S.PAUSING):
        yield _done(
            Operation.SLEEP_ABORT, state, S.SLEEPING, "end with `abort`", "end with `abort`"
        )
        yield _done(
            Operation.SLEEP_WAIT,
            state,
            S.PAUSING,
            "run to their end, then it sleeps",
            "wait for wake_up",
            then=S.SLEEPING,
        )
        yield _done(
            Operation.SLEEP_KEEP,
            state,
            S.SLEEPING,
            "freeze; computed again after wake_up (level 0: go on)",
            "wait for wake_up",
        )
    again = "end with `abort`, unless it was paused with abort already"
    for state in (S.PAUSED, S.SLEEPING, S.WAKING):
        yield _done(Operation.SLEEP_ABORT, state, S.SLEEPING, again, again)
        for operation in (Operation.SLEEP_WAIT, Operation.SLEEP_KEEP):
            yield _done(
                operation,
                state,
                S.SLEEPING,
                "stay frozen; computed again after wake_up (level 0: go on)",
                "wait for wake_up",
            )
    for operation in _SLEEPS:
        yield _unchanged(operation, S.DRAINING, _DRAINS)


def _wake_up() -> Iterator[Transition]:
    for state in (S.RUNNING, S.PAUSING, S.PAUSED):
        yield _unchanged(Operation.WAKE_MEMORY, state)
    for state in (S.SLEEPING, S.WAKING):
        yield _done(
            Operation.WAKE_MEMORY,
            state,
            S.WAKING,
            "stay frozen",
            "go on waiting",
            then=S.PAUSED,
        )
        yield _done(
            Operation.WAKE_UP,
            state,
            S.WAKING,
            "go on",
            "run",
            then=S.RUNNING,
            refusal=_STAYS_ASLEEP,
        )
    yield _unchanged(Operation.WAKE_UP, S.RUNNING)
    for state in (S.PAUSING, S.PAUSED):
        yield _done(Operation.WAKE_UP, state, S.RUNNING, "go on", "run")
    yield _unchanged(Operation.WAKE_MEMORY, S.DRAINING, _DRAINS)
    yield _done(Operation.WAKE_UP, S.DRAINING, S.RUNNING, "go on", "run", refusal=_STAYS_ASLEEP)


def _maintain() -> Iterator[Transition]:
    for state in _ALIVE:
        yield _done(
            Operation.RESET_PREFIX_CACHE,
            state,
            state,
            "stand in the way, or are computed again (preempt_running)",
            _AS_BEFORE,
        )
        yield _done(Operation.PLUGIN, state, state, _AS_BEFORE, _AS_BEFORE)
        for operation in (Operation.WORKERS, Operation.ADAPTERS):
            if state in (S.SLEEPING, S.WAKING):
                yield _unchanged(operation, state, f"the engine is {state}; call wake_up first")
            else:
                yield _done(operation, state, state, _AS_BEFORE, _AS_BEFORE)
    operation, pause_first = (
        Operation.UPDATE_WEIGHTS,
        "there are requests in the engine; pause first",
    )
    new = "with the new weights"
    yield _done(
        operation,
        S.RUNNING,
        S.RECONFIGURING,
        "there must be none",
        "there must be none",
        then=S.RUNNING,
        refusal=pause_first,
        late=f"run {new}",
    )
    yield _unchanged(operation, S.PAUSING, f"it is still pausing, and {pause_first}")
    for state, refusal in ((S.PAUSED, ""), (S.WAKING, "the weights are asleep; wake them first")):
        yield _done(
            operation,
            state,
            S.RECONFIGURING,
            f"stay frozen; computed again {new}",
            "go on waiting",
            then=state,
            refusal=refusal,
            late=_LATE[state],
        )
    yield _unchanged(
        operation, S.SLEEPING, "the engine is sleeping; wake the weights first (wake_up)"
    )
    yield _unchanged(operation, S.DRAINING, _DRAINS)


def _drain() -> Iterator[Transition]:
    for state in _ALIVE:
        if state in (S.PAUSED, S.SLEEPING, S.WAKING):
            fate = "end with `abort`"
        else:
            fate = "run to their end, or to the deadline"
        yield _done(Operation.DRAIN, state, S.DRAINING, fate, fate)


TRANSITIONS: Final[dict[tuple[Operation, S], Transition]] = {
    (each.operation, each.state): each for each in _all()
}
"""Commands given while the engine starts, or while weights are replaced, wait until that is over;
so there is an entry for every other state."""
