"""Broken schedulers, all but one made of the built-in one."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import msgspec

from builtin_plugins.scheduler_continuous.scheduler import ContinuousScheduler
from hookspecs.contracts.request_view import RequestView
from hookspecs.contracts.scheduler import Scheduler, SchedulerContext
from hookspecs.types.columns import Int32Column
from hookspecs.types.kv import CachedPrefix
from hookspecs.types.request import FinishReason, RequestStatus
from hookspecs.types.step import SchedulerOutput
from tests.conformance.mutants.mutant import Mutant, providing

__all__ = ["MUTANTS"]


class _Between:
    """Stands before what the kernel lends, to misuse it; the mutants override methods."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _Mutant(ContinuousScheduler):
    """The built-in scheduler over lent parts that a mutant has replaced."""

    policies: type[_Between] = _Between
    cache: type[_Between] = _Between
    table: type[_Between] = _Between

    def __init__(self, context: SchedulerContext) -> None:
        super().__init__(
            msgspec.structs.replace(
                context,
                policies=self.policies(context.policies),
                kv_cache=self.cache(context.kv_cache),
                requests=self.table(context.requests),
            )
        )


class OverrunsTheBudget(ContinuousScheduler):
    def __init__(self, context: SchedulerContext) -> None:
        super().__init__(context)
        self._max_num_batched_tokens += 7


class ForgetsAborts(ContinuousScheduler):
    def on_request_finished(self, request: RequestView, reason: FinishReason) -> None:
        if reason is FinishReason.ABORT and request.status is not RequestStatus.RUNNING:
            self.context.policies.on_finish(request, reason)
            return
        super().on_request_finished(request, reason)


class ForgetsFailures(ContinuousScheduler):
    """Goes on with a row that failed."""

    def on_request_finished(self, request: RequestView, reason: FinishReason) -> None:
        if reason is FinishReason.ERROR:
            self.context.policies.on_finish(request, reason)
            return
        super().on_request_finished(request, reason)


class SmallestFirst(_Mutant):
    class policies(_Between):
        def key(self, request: RequestView) -> Any:
            return (request.num_prompt_tokens, request.arrival)


class DrawsLots(_Mutant):
    class policies(_Between):
        def key(self, request: RequestView) -> Any:
            self._real.key(request)
            return (random.random(), request.arrival)


class OrdersByName(_Mutant):
    class policies(_Between):
        def key(self, request: RequestView) -> Any:
            return (int.from_bytes(request.request_id.encode()) % 7, request.arrival)


class OrdersByArrival(_Mutant):
    class policies(_Between):
        def key(self, request: RequestView) -> Any:
            self._real.key(request)
            return (request.arrival,)


class WithoutChunks(_Mutant):
    """Starts a prompt only if a step can take all of it."""

    class policies(_Between):
        def admit(self, request: RequestView) -> bool:
            return request.num_prompt_tokens <= 8 and bool(self._real.admit(request))


class IgnoresTheThreshold(ContinuousScheduler):
    def __init__(self, context: SchedulerContext) -> None:
        super().__init__(context)
        self._most_per_row = self._max_num_batched_tokens


class IgnoresCaps(_Mutant):
    class policies(_Between):
        def cap_tokens(self, budget: int) -> int:
            return budget


class AsksForKeysAllTheTime(_Mutant):
    class policies(_Between):
        dynamic_order = True


class KeepsKeys(_Mutant):
    class policies(_Between):
        dynamic_order = False


class KeepsKeysOfGroups(_Mutant):
    """Takes a group for something whose place does not change."""

    class policies(_Between):
        def place(self, request: RequestView) -> Any:
            placed = self._real.place(request)
            self.kept = {**vars(self).get("kept", {}), placed: self._real.key(request)}
            return placed

        def key(self, request: RequestView) -> Any:
            kept = vars(self).get("kept", {})
            return kept.get(self._real.place(request), self._real.key(request))


class OneGroupForAll(_Mutant):
    """Whoever has a group is ordered by its place in it."""

    class policies(_Between):
        def place(self, request: RequestView) -> Any:
            placed = self._real.place(request)
            return placed and ("all", placed[1])


class LooksAtHeadsOnly(_Mutant):
    """Considers nobody behind the first of a group, when that one is held back."""

    class policies(_Between):
        held: frozenset[Any] = frozenset()

        def admit(self, request: RequestView) -> bool:
            placed = self._real.place(request)
            if placed is not None and placed[0] in self.held:
                return False
            admitted = bool(self._real.admit(request))
            if placed is not None and not admitted:
                self.held |= {placed[0]}
            return admitted

        def expire(self) -> list[str]:
            self.held = frozenset()
            return list(self._real.expire())


class QueuesPreemptedLast(_Mutant):
    class policies(_Between):
        def key(self, request: RequestView) -> Any:
            resumed = request.status is RequestStatus.PREEMPTED or bool(request.num_preemptions)
            return (resumed, *self._real.key(request))


class StopsAtWhoIsHeldBack(ContinuousScheduler):
    def schedule(self) -> SchedulerOutput:
        waiting = self._queues.waiting
        first, waiting.next_in_turn = waiting.first, lambda: None  # type: ignore[method-assign]
        asked: list[Any] = []

        def once() -> Any:
            entry = first()
            passed = asked and asked[-1].request.status is RequestStatus.WAITING
            asked.append(entry)
            return None if passed else entry

        waiting.first = once  # type: ignore[method-assign]
        try:
            return super().schedule()
        finally:
            waiting.first = first  # type: ignore[method-assign]


class AdmitsAll(_Mutant):
    class policies(_Between):
        def admit(self, request: RequestView) -> bool:
            self._real.admit(request)
            return True


class NeverExpires(_Mutant):
    class policies(_Between):
        def expire(self) -> list[str]:
            return []


class ExpiresWhatRuns(ContinuousScheduler):
    def _expire(self) -> None:
        for name in self.context.policies.expire():
            for entry in self._queues.running.order:
                if entry.request.request_id == name:
                    self._queues.end(entry.request, FinishReason.TIMEOUT, "")


class ReportsEveryEndAsAbort(_Mutant):
    class policies(_Between):
        def on_finish(self, request: RequestView, reason: FinishReason) -> None:
            self._real.on_finish(request, FinishReason.ABORT)


class CountsOnlyTheFresh(ContinuousScheduler):
    """Stale counts: who was preempted does not wait, it says."""

    @property
    def num_waiting(self) -> int:
        waiting = self._queues.waiting._by_id.values()
        return sum(not entry.request.num_preemptions for entry in waiting)


class PreemptsSome(ContinuousScheduler):
    """Leaves who is first in the order where it is."""

    def preempt_all(self) -> None:
        for entry in reversed(self._queues.running.order[1:]):
            self._queues.preempt(entry)


class LeaksBlocks(_Mutant):
    """Frees at a preemption only what is short."""

    class cache(_Between):
        def free(self, slot: int) -> None:
            if self._real.capacity[slot] < 8:
                self._real.free(slot)


class RepeatsTheLastStep(ContinuousScheduler):
    last: SchedulerOutput | None = None

    def schedule(self) -> SchedulerOutput:
        output = super().schedule()
        if not output.num_rows and self.last is not None:
            return self.last
        self.last = output
        return output


class ForgetsNobody(ContinuousScheduler):
    def __init__(self, context: SchedulerContext) -> None:
        super().__init__(context)
        self._seen: list[RequestView] = []

    def add_request(self, request: RequestView) -> None:
        self._seen.append(request)
        super().add_request(request)


class RecordsNoLookup(_Mutant):
    class cache(_Between):
        def record_lookup(self, request: RequestView, cached: CachedPrefix) -> None:
            if not request.num_preemptions:
                self._real.record_lookup(request, cached)


class LooksNothingUp(_Mutant):
    class cache(_Between):
        def lookup(self, request: RequestView) -> CachedPrefix:
            return CachedPrefix()


class FreesTooLate(_Mutant):
    """Preempts first, and frees the blocks when the slot is somebody else's."""

    class cache(_Between):
        slots: tuple[int, ...] = ()

        def free(self, slot: int) -> None:
            self.slots = (*self.slots, slot)

        @property
        def num_free_blocks(self) -> int:
            for slot in self.slots:
                self._real.free(slot)
            self.slots = ()
            return int(self._real.num_free_blocks)


class ChoosesVictimsItself(_Mutant):
    class policies(_Between):
        def select_victim(self, candidates: list[RequestView]) -> RequestView:
            self._real.select_victim(candidates)
            return candidates[-1]


class PushesNobodyOut(_Mutant):
    """Ignores what its capability says."""

    class policies(_Between):
        def preempts(self, waiting: RequestView, running: RequestView) -> bool:
            return False


class PushesOutUnasked(_Mutant):
    class policies(_Between):
        def preempts(self, waiting: RequestView, running: RequestView) -> bool:
            return True


class SwallowsErrors(ContinuousScheduler):
    """Takes any error for a reason to do nothing in this step."""

    def add_request(self, request: RequestView) -> None:
        with contextlib.suppress(Exception):
            super().add_request(request)

    def schedule(self) -> SchedulerOutput:
        with contextlib.suppress(Exception):
            return super().schedule()
        self.context.requests.take_started()  # type: ignore[attr-defined]
        return _idle(self)

    def on_request_finished(self, request: RequestView, reason: FinishReason) -> None:
        with contextlib.suppress(Exception):
            super().on_request_finished(request, reason)


class ComparesAllWithAll(ContinuousScheduler):
    def schedule(self) -> SchedulerOutput:
        waiting = self._queues.waiting._by_id.values()
        pairs = 0
        for one in waiting:
            for other in waiting:
                pairs += one is other
        return super().schedule()


class CutsOutputsShort(_Mutant):
    """Ends what was preempted as if it had come to its length."""

    class table(_Between):
        def start(self, request: RequestView, num_computed_tokens: int) -> int:
            if request.num_preemptions:
                held: Any = request
                held.max_total_tokens = request.num_tokens + 1
            return int(self._real.start(request, num_computed_tokens))


class WaitsForSilence(_Mutant):
    """Starts no prompt that does not fit beside decodes, while others run."""

    def __init__(self, context: SchedulerContext) -> None:
        super().__init__(context)
        self._queues.policies.scheduler = self  # type: ignore[attr-defined]

    class policies(_Between):
        scheduler: ContinuousScheduler

        def admit(self, request: RequestView) -> bool:
            most = self.scheduler.context.prefill_beside_decode
            fits = most is None or request.num_tokens <= most
            return (fits or not self.scheduler.num_running) and bool(self._real.admit(request))


class RoundsSharesDown(ContinuousScheduler):
    """Divides what fits beside decodes among all that run, until nothing is left for each."""

    def schedule(self) -> SchedulerOutput:
        most = self.context.prefill_beside_decode
        if most is not None and self.num_running:
            self._most_per_row = most // self.num_running
        return super().schedule()


class TakesItForTheBudget(ContinuousScheduler):
    """What fits beside decodes."""

    def __init__(self, context: SchedulerContext) -> None:
        super().__init__(context)
        self._max_num_batched_tokens = (
            context.prefill_beside_decode or context.config.scheduler.max_num_batched_tokens
        )


def _idle(scheduler: Scheduler) -> SchedulerOutput:
    none: Int32Column = scheduler.context.requests.num_tokens[:0]
    return SchedulerOutput(
        step=0,
        slots=none,
        num_scheduled_tokens=none,
        num_computed_tokens=none,
        samples=none.astype(bool),
        total_num_scheduled_tokens=0,
    )


def _mutant(fault: str, part: type[ContinuousScheduler], *caught_by: str) -> Mutant:
    return Mutant("scheduler", fault, providing("scheduler", part), caught_by)


class DeclaresNoPreemption(ContinuousScheduler):
    """Preempts all the same."""

    capabilities = frozenset()


MUTANTS = [
    _mutant("overruns the budget", OverrunsTheBudget, "test_everything_ends"),
    _mutant(
        "forgets an abort while waiting",
        ForgetsAborts,
        "test_everything_ends",
        "test_abort_in_any_state",
    ),
    _mutant("goes on with failed rows", ForgetsFailures, "test_it_survives_failures_and_controls"),
    _mutant("smallest prompt first", SmallestFirst, "test_nobody_starves"),
    _mutant(
        "starts long prompts when nobody decodes",
        WaitsForSilence,
        "test_prompts_beside_decodes_come_to_their_end",
    ),
    _mutant(
        "rounds shares beside decodes down",
        RoundsSharesDown,
        "test_everything_ends",
        "test_prompts_beside_decodes_come_to_their_end",
    ),
    _mutant(
        "takes what fits beside decodes for the budget", TakesItForTheBudget, "test_everything_ends"
    ),
    _mutant("starts at random", DrawsLots, "test_same_events_same_schedule"),
    _mutant("starts by the request id", OrdersByName, "test_names_do_not_decide"),
    _mutant("ignores the keys of policies", OrdersByArrival, "test_requests_start_in_order"),
    _mutant("starts no long prompt", WithoutChunks, "test_long_prompts_are_computed_in_chunks"),
    _mutant("ignores the threshold", IgnoresTheThreshold, "test_the_threshold_is_followed"),
    _mutant("ignores caps", IgnoresCaps, "test_caps_are_kept"),
    _mutant(
        "asks for all keys at every step",
        AsksForKeysAllTheTime,
        "test_keys_are_asked_for_when_queued",
    ),
    _mutant("keeps moving keys", KeepsKeys, "test_moving_keys_are_asked_for_anew"),
    _mutant("keeps the keys of groups", KeepsKeysOfGroups, "test_groups_keep_to_the_order"),
    _mutant("one group for all", OneGroupForAll, "test_groups_keep_to_the_order"),
    _mutant("looks at heads of groups", LooksAtHeadsOnly, "test_groups_keep_to_the_order"),
    _mutant(
        "queues preempted ones last", QueuesPreemptedLast, "test_preempted_requests_come_first"
    ),
    _mutant(
        "stops at one that is held back",
        StopsAtWhoIsHeldBack,
        "test_who_is_held_back_holds_back_nobody",
    ),
    _mutant("starts who is held back", AdmitsAll, "test_who_is_held_back_holds_back_nobody"),
    _mutant("ends nobody for its time", NeverExpires, "test_expired_requests_end_with_timeout"),
    _mutant("expires what runs", ExpiresWhatRuns, "test_what_does_not_wait_does_not_expire"),
    _mutant("reports other reasons", ReportsEveryEndAsAbort, "test_policies_hear_how_requests_end"),
    _mutant("counts preempted ones not", CountsOnlyTheFresh, "test_counts_are_true"),
    _mutant("preempts not all", PreemptsSome, "test_preempt_all"),
    _mutant(
        "leaks blocks at a preemption",
        LeaksBlocks,
        "test_preempt_all",
        "test_blocks_are_freed_before_a_preemption",
    ),
    _mutant("repeats its last step", RepeatsTheLastStep, "test_an_idle_step_is_empty"),
    _mutant("keeps requests that ended", ForgetsNobody, "test_requests_that_ended_are_forgotten"),
    _mutant("records no resumed lookup", RecordsNoLookup, "test_a_start_keeps_to_its_protocol"),
    _mutant(
        "does not use the cache",
        LooksNothingUp,
        "test_a_start_keeps_to_its_protocol",
        "test_cached_prefixes_are_used",
    ),
    _mutant("frees after a preemption", FreesTooLate, "test_blocks_are_freed_before_a_preemption"),
    _mutant("chooses victims itself", ChoosesVictimsItself, "test_policies_choose_the_victim"),
    _mutant("lets nobody push out", PushesNobodyOut, "test_who_may_push_out_does"),
    _mutant("pushes out unasked", PushesOutUnasked, "test_nobody_is_pushed_out_unasked"),
    _mutant(
        "preempts undeclared",
        DeclaresNoPreemption,
        "test_without_preemption_nobody_is_preempted",
    ),
    _mutant(
        "swallows errors of others",
        SwallowsErrors,
        "test_errors_of_policies_come_out",
        "test_errors_of_the_cache_come_out",
    ),
    _mutant("compares all with all", ComparesAllWithAll, "test_a_step_costs_in_proportion"),
    _mutant(
        "cuts preempted outputs short",
        CutsOutputsShort,
        "test_tokens_do_not_depend_on_it",
        "test_control_of_an_engine",
    ),
]
