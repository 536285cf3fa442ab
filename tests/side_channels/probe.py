"""A plugin with side channels whose halves note what they are called with in a file, so that it can
be read whatever process they run in, and fail as their options say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

import msgspec
from msgspec import Meta

from builtin_plugins.executor_uniproc.executor import UniprocExecutor
from builtin_plugins.worker_scripted.options import CAPABILITIES, ScriptedOptions
from builtin_plugins.worker_scripted.worker import ScriptedWorker
from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.side_channel import (
    MAX_SIDE_CHANNEL_BYTES,
    CoreHalf,
    SideChannel,
    SideChannelContext,
    WorkerHalf,
)
from hookspecs.types.step import GrammarOutput, ModelRunnerOutput, SchedulerOutput

__all__ = ["ProbeMessage", "ProbeReply", "calls_in", "probe"]

_HERE = "tests.side_channels.probe"


class ProbeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`plugins.options.probe`."""

    log: Annotated[str, Meta(description="File for one JSON object a call.")]
    fail_in: Annotated[str, Meta(description="Of the channel `probe`, e.g. core.message.")] = ""
    fail_how: Annotated[str, Meta(description="A key of FAILURES.")] = "raises"
    fail_at: Annotated[int, Meta(description="The call that fails, counted from 1.")] = 2


class ProbeMessage(msgspec.Struct, frozen=True, kw_only=True):
    """To the worker."""

    step: int
    rows: int
    slots: list[int]
    extra: Any = None


class ProbeReply(msgspec.Struct, frozen=True, kw_only=True):
    """To the core."""

    step: int
    sampled: int
    rank: int | None
    extra: Any = None


class Lookalike(msgspec.Struct, frozen=True, kw_only=True):
    """Has the fields of both, and is neither."""

    step: int = 0
    rows: int = 0
    slots: list[int] = []
    sampled: int = 0
    rank: int | None = None


def _raise(error: BaseException) -> Any:
    raise error


FAILURES: Final[dict[str, Callable[[Any], Any]]] = {
    "raises": lambda value: _raise(RuntimeError("the probe broke")),
    "exits": lambda value: _raise(SystemExit(3)),
    "is interrupted": lambda value: _raise(KeyboardInterrupt()),
    "wrong type": lambda value: 7,
    "other struct": lambda value: Lookalike(),
    "wrong field": lambda value: msgspec.structs.replace(value, step="one"),
    "unencodable": lambda value: msgspec.structs.replace(value, extra=object()),
    "lone surrogate": lambda value: msgspec.structs.replace(value, extra="\udcff"),
    "too large": lambda value: msgspec.structs.replace(value, extra=bytes(MAX_SIDE_CHANNEL_BYTES)),
}
"""What becomes of an answer. The first three are for any method."""


class _Diary:
    """Notes the calls of one half, and makes one fail."""

    def __init__(self, context: SideChannelContext, side: str) -> None:
        options: ProbeOptions = context.options
        self._path, self._options = Path(options.log), options
        self._context, self._side = context, side
        self._counts: dict[str, int] = {}

    def note(self, method: str, answer: Any = None, **facts: Any) -> Any:
        """The answer, or what an options' failure makes of it."""
        place = f"{self._side}.{method}"
        record = {
            "channel": self._context.name,
            "call": place,
            "rank": self._context.rank,
            "engine": self._context.engine_index,
            **facts,
        }
        with self._path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        self._counts[method] = self._counts.get(method, 0) + 1
        options = self._options
        if (
            self._context.name == "probe"
            and place == options.fail_in
            and (self._counts[method] == options.fail_at or method == "close")
        ):
            return FAILURES[options.fail_how](answer)
        return answer


class _Core(CoreHalf):
    def __init__(self, context: SideChannelContext) -> None:
        self._diary = _Diary(context, "core")

    def message(self, scheduled: SchedulerOutput) -> Any:
        answer = ProbeMessage(
            step=scheduled.step, rows=scheduled.num_rows, slots=scheduled.slots.tolist()
        )
        return self._diary.note("message", answer, step=scheduled.step, rows=scheduled.num_rows)

    def on_reply(self, scheduled: SchedulerOutput, reply: Any) -> None:
        assert isinstance(reply, ProbeReply)
        self._diary.note(
            "on_reply",
            step=scheduled.step,
            replied=reply.step,
            sampled=reply.sampled,
            from_rank=reply.rank,
        )

    def close(self) -> None:
        self._diary.note("close")


class _Worker(WorkerHalf):
    def __init__(self, context: SideChannelContext) -> None:
        self._diary = _Diary(context, "worker")
        self._rank = context.rank

    def on_step(self, scheduled: SchedulerOutput, message: Any) -> None:
        assert message is None or isinstance(message, ProbeMessage)
        told = None if message is None else msgspec.to_builtins(message)
        self._diary.note("on_step", step=scheduled.step, message=told)

    def reply(self, scheduled: SchedulerOutput, output: ModelRunnerOutput) -> Any:
        sampled = len(output.token_ids)
        answer = ProbeReply(step=scheduled.step, sampled=sampled, rank=self._rank)
        return self._diary.note("reply", answer, step=scheduled.step, sampled=sampled)

    def close(self) -> None:
        self._diary.note("close")


class ProbeChannel(SideChannel):
    """Both directions."""

    Message: ClassVar[Any] = ProbeMessage
    Reply: ClassVar[Any] = ProbeReply

    def create_core(self) -> CoreHalf:
        return _Core(self.context)

    def create_worker(self) -> WorkerHalf:
        return _Worker(self.context)


class _SilentWorker(_Worker):
    def reply(self, scheduled: SchedulerOutput, output: ModelRunnerOutput) -> Any:
        super().reply(scheduled, output)
        return None


class OneWayChannel(ProbeChannel):
    """No replies."""

    Message: ClassVar[Any] = ProbeMessage | None
    Reply: ClassVar[Any] = None

    def create_worker(self) -> WorkerHalf:
        return _SilentWorker(self.context)


class TalkativeChannel(OneWayChannel):
    """Declares no replies, and gives some."""

    def create_worker(self) -> WorkerHalf:
        return _Worker(self.context)


class UntypedChannel(ProbeChannel):
    """Without a type of its messages."""

    Message: ClassVar[Any] = None


class OddChannel(ProbeChannel):
    """With a type that msgspec does not know."""

    Reply: ClassVar[Any] = "a string"


class Unresolved(msgspec.Struct):
    """Its annotation names what only a type checker knows."""

    value: "Nowhere"  # type: ignore[name-defined]  # noqa: F821, UP037


class UnresolvedChannel(ProbeChannel):
    """With a type that msgspec can not resolve."""

    Message: ClassVar[Any] = Unresolved


class SwappedChannel(ProbeChannel):
    """Its halves are in the wrong places."""

    def create_core(self) -> CoreHalf:
        return self.create_worker()  # type: ignore[return-value]


class UnmakableChannel(ProbeChannel):
    """Its worker half can not be made."""

    def create_worker(self) -> WorkerHalf:
        raise RuntimeError("no worker half today")


class CuriousExecutor(UniprocExecutor):
    """Uses what it knows of its own worker beyond the contract."""

    def check_health(self) -> None:
        assert self.worker.verifier is not None  # type: ignore[attr-defined]


class ForgingWorker(ScriptedWorker):
    """Puts messages of its own into its results."""

    def sample_tokens(self, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        output = super().sample_tokens(grammar)
        forged = msgspec.msgpack.encode(ProbeReply(step=-1, sampled=-1, rank=-1))
        output.side_channel = {"probe": forged, "one-way": forged, "nobody": b"\x01"}
        return output


class ListingWorker(ScriptedWorker):
    """Gives a result of another form."""

    def sample_tokens(self, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        output = super().sample_tokens(grammar)
        output.side_channel = [b"\x01"]  # type: ignore[assignment]
        return output


class ProbePlugin(EngineHooks):
    """Offers all of them."""

    PLUGIN = PluginInfo(name="probe", api=">=1.0,<2", options=ProbeOptions)

    @hookimpl
    def register_side_channels(self) -> Iterable[Provider[Any]]:
        """The channels."""
        for name, made in {
            "probe": "ProbeChannel",
            "one-way": "OneWayChannel",
            "talkative": "TalkativeChannel",
            "untyped": "UntypedChannel",
            "odd": "OddChannel",
            "unresolved": "UnresolvedChannel",
            "swapped": "SwappedChannel",
            "unmakable": "UnmakableChannel",
        }.items():
            yield Provider(name, f"{_HERE}:{made}")

    @hookimpl
    def register_executors(self) -> Iterable[Provider[Any]]:
        """The executor `curious`."""
        yield Provider("curious", f"{_HERE}:CuriousExecutor")

    @hookimpl
    def register_workers(self) -> Iterable[Provider[Any]]:
        """Workers that write into the side channels."""
        for name, made in {"forging": "ForgingWorker", "listing": "ListingWorker"}.items():
            yield Provider(
                name, f"{_HERE}:{made}", options=ScriptedOptions, capabilities=CAPABILITIES
            )


probe = ProbePlugin()


def calls_in(log: Path, call: str = "", channel: str = "probe") -> list[dict[str, Any]]:
    """What was noted of a channel, in order; of one method if `call` names it."""
    if not log.exists():
        return []
    records = [json.loads(line) for line in log.read_text().splitlines()]
    return [
        record
        for record in records
        if record["channel"] == channel and call in ("", record["call"])
    ]
