"""Broken side channels. One that other processes import has a plugin with a name here."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec

from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.side_channel import (
    CoreHalf,
    SideChannel,
    SideChannelContext,
    WorkerHalf,
)
from hookspecs.types.step import ModelRunnerOutput, SchedulerOutput
from tests.conformance.mutants.mutant import Mutant, providing

__all__ = ["MUTANTS"]


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Both ways."""

    rows: int
    extra: Any = None


class _Core(CoreHalf):
    def message(self, scheduled: SchedulerOutput) -> Any:
        return Note(rows=scheduled.num_rows)


class _Worker(WorkerHalf):
    """Right in all that its subclasses do not replace."""

    def __init__(self) -> None:
        self.noted: dict[int, Note] = {}

    def on_step(self, scheduled: SchedulerOutput, message: Any) -> None:
        if message is not None:
            self.noted[scheduled.step] = message

    def reply(self, scheduled: SchedulerOutput, output: ModelRunnerOutput) -> Any:
        return self.noted.pop(scheduled.step, None)


class _Channel(SideChannel):
    Message: ClassVar[Any] = Note
    Reply: ClassVar[Any] = Note
    core: ClassVar[type[CoreHalf]] = _Core
    worker: ClassVar[type[WorkerHalf]] = _Worker

    def create_core(self) -> CoreHalf:
        return self.core()

    def create_worker(self) -> WorkerHalf:
        return self.worker()


class Untyped(_Channel):
    Message: ClassVar[Any] = None


class OfNoType(_Channel):
    Reply: ClassVar[Any] = "a text"


class Nowhere(msgspec.Struct):
    """Names what only a type checker knows."""

    value: "Elsewhere"  # type: ignore[name-defined]  # noqa: F821, UP037


class Unresolved(_Channel):
    Message: ClassVar[Any] = Nowhere


class KnowsOneRank(_Channel):
    """Wrong rank: works with one worker only."""

    def __init__(self, context: SideChannelContext) -> None:
        super().__init__(context)
        if context.rank not in (None, 0):
            raise ValueError("there is one worker only")


class SendsWhatItMade(_Core):
    def message(self, scheduled: SchedulerOutput) -> Any:
        return Note(rows=scheduled.num_rows, extra=object())


class Unencodable(_Channel):
    core = SendsWhatItMade


class RepliesWithColumns(_Worker):
    def reply(self, scheduled: SchedulerOutput, output: ModelRunnerOutput) -> Any:
        return output.num_sampled.tolist()


class RepliesOfAnotherType(_Channel):
    worker = RepliesWithColumns


class FollowsSlots(_Core):
    """Stale state after preemption: takes a slot for the request that had it first."""

    def __init__(self) -> None:
        self.owners: dict[int, str] = {}

    def message(self, scheduled: SchedulerOutput) -> Any:
        for request in scheduled.new_requests:
            if self.owners.setdefault(request.slot, request.request_id) != request.request_id:
                raise KeyError(request.slot)
        return super().message(scheduled)


class HoldsOnToSlots(_Channel):
    core = FollowsSlots


class SendsPrompts(_Core):
    def message(self, scheduled: SchedulerOutput) -> Any:
        tokens = [request.token_ids for request in scheduled.new_requests]
        return Note(rows=scheduled.num_rows, extra=tokens)


class GrowsWithPrompts(_Channel):
    core = SendsPrompts


class AddsToTheStep(_Core):
    def message(self, scheduled: SchedulerOutput) -> Any:
        scheduled.preempted_request_ids.append("mine")
        return super().message(scheduled)


class ChangesTheStep(_Channel):
    core = AddsToTheStep


class TakesTokens(_Worker):
    def reply(self, scheduled: SchedulerOutput, output: ModelRunnerOutput) -> Any:
        output.failures.clear()
        output.token_ids += 1
        return super().reply(scheduled, output)


class ChangesTheResult(_Channel):
    worker = TakesTokens


class TrustsTheCore(_Worker):
    def reply(self, scheduled: SchedulerOutput, output: ModelRunnerOutput) -> Any:
        return Note(rows=self.noted.pop(scheduled.step).rows)


class NeedsAMessage(_Channel):
    worker = TrustsTheCore


class KeepsBooks(_Core):
    """One entry for each step, until the answer."""

    def __init__(self) -> None:
        self.pending: dict[int, Note] = {}

    def message(self, scheduled: SchedulerOutput) -> Any:
        self.pending[scheduled.step] = super().message(scheduled)
        return self.pending[scheduled.step]

    def on_reply(self, scheduled: SchedulerOutput, reply: Any) -> None:
        self.pending.pop(scheduled.step, None)


class KeepsBooksOfSteps(_Channel):
    core = KeepsBooks


class OneStepAtATime(_Core):
    waits = False

    def message(self, scheduled: SchedulerOutput) -> Any:
        if self.waits:
            raise RuntimeError("the step before has no answer")
        self.waits = True
        return super().message(scheduled)

    def on_reply(self, scheduled: SchedulerOutput, reply: Any) -> None:
        self.waits = False


class WaitsForEachAnswer(_Channel):
    core = OneStepAtATime


class RepliesToTheLast(_Worker):
    """Keeps the step that began last for the current one."""

    def on_step(self, scheduled: SchedulerOutput, message: Any) -> None:
        self.current = message

    def reply(self, scheduled: SchedulerOutput, output: ModelRunnerOutput) -> Any:
        return self.current


class MixesStepsUp(_Channel):
    worker = RepliesToTheLast


_shared: queue.SimpleQueue[int] = queue.SimpleQueue()


class PutsAside(_Core):
    def message(self, scheduled: SchedulerOutput) -> Any:
        _shared.put(scheduled.num_rows)
        return super().message(scheduled)


class PicksUp(_Worker):
    def reply(self, scheduled: SchedulerOutput, output: ModelRunnerOutput) -> Any:
        return Note(rows=_shared.get_nowait())


class SharesAQueue(_Channel):
    """Its halves meet behind the messages, as they can in one process."""

    core = PutsAside
    worker = PicksUp


class SharesAQueuePlugin(EngineHooks):
    """Can be imported by the process of a worker."""

    PLUGIN = PluginInfo(name="mutant", api=">=1.0,<2")

    @hookimpl
    def register_side_channels(self) -> Iterable[Provider[Any]]:
        yield Provider("mutant", f"{__name__}:SharesAQueue")


class WaitsForTheCore(_Worker):
    """Lost wake-up: late futures of a thread that nobody started."""

    def reply(self, scheduled: SchedulerOutput, output: ModelRunnerOutput) -> Any:
        threading.Event().wait()
        return None


class WaitsLong(_Channel):
    worker = WaitsForTheCore


class TellsTheMean(_Core):
    """Divides by the number of its steps."""

    steps = rows = 0

    def on_reply(self, scheduled: SchedulerOutput, reply: Any) -> None:
        self.steps += 1
        self.rows += reply.rows

    def close(self) -> None:
        self.mean = self.rows / self.steps


class NeedsAStep(_Channel):
    core = TellsTheMean


class Samples(_Worker):
    def __init__(self) -> None:
        super().__init__()
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.done.wait, name="samples", daemon=True)
        self.thread.start()


class LeavesAThread(_Channel):
    worker = Samples


class LooksAtPrompts(_Core):
    """Thinks that who starts has sampled nothing; a request that was preempted has."""

    def message(self, scheduled: SchedulerOutput) -> Any:
        for request in scheduled.new_requests:
            if request.num_prompt_tokens < len(request.token_ids):
                raise RuntimeError("a request begins with tokens that nobody sampled")
        return super().message(scheduled)


class KnowsNoPreemption(_Channel):
    core = LooksAtPrompts


class SamplesAnew(_Worker):
    def reply(self, scheduled: SchedulerOutput, output: ModelRunnerOutput) -> Any:
        output.token_ids = output.token_ids * 0 + 1
        return super().reply(scheduled, output)


class ChangesTokens(_Channel):
    worker = SamplesAnew


def _mutant(fault: str, part: type[SideChannel], *caught_by: str) -> Mutant:
    return Mutant("side_channel", fault, providing("side_channel", part), caught_by)


MUTANTS = [
    _mutant("declares no message", Untyped, "test_both_halves_can_be_made"),
    _mutant("a type that is none", OfNoType, "test_both_halves_can_be_made"),
    _mutant("knows one rank", KnowsOneRank, "test_both_halves_can_be_made"),
    _mutant("can not be encoded", Unencodable, "test_messages_arrive_as_they_were_sent"),
    _mutant("another type", RepliesOfAnotherType, "test_messages_arrive_as_they_were_sent"),
    _mutant("holds on to slots", HoldsOnToSlots, "test_messages_arrive_as_they_were_sent"),
    _mutant("waits long", WaitsLong, "test_messages_arrive_as_they_were_sent"),
    _mutant("grows with prompts", GrowsWithPrompts, "test_messages_stay_small"),
    _mutant("changes the step", ChangesTheStep, "test_what_is_lent_is_not_changed"),
    _mutant("changes the result", ChangesTheResult, "test_what_is_lent_is_not_changed"),
    _mutant("needs a message", NeedsAMessage, "test_a_half_goes_on_without_the_other"),
    _mutant("keeps books", KeepsBooksOfSteps, "test_nothing_is_kept_for_an_answer"),
    _mutant("one step at a time", WaitsForEachAnswer, "test_several_steps_may_be_in_flight"),
    _mutant("mixes up steps", MixesStepsUp, "test_several_steps_may_be_in_flight"),
    _mutant("an unknown annotation", Unresolved, "test_both_halves_can_be_made"),
    Mutant(
        "side_channel",
        "shares a queue",
        SharesAQueuePlugin(),
        ("test_the_halves_share_nothing",),
    ),
    _mutant("can not be closed unused", NeedsAStep, "test_it_closes_quietly"),
    _mutant("leaves a thread", LeavesAThread, "test_it_closes_quietly"),
    _mutant("knows no preemption", KnowsNoPreemption, "test_an_engine_runs_as_without"),
    _mutant("changes tokens", ChangesTokens, "test_an_engine_runs_as_without"),
]
