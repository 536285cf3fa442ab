"""Broken scheduling policies."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from hookspecs.contracts.policy import (
    Admission,
    OrderKey,
    PolicyCapability,
    PolicyContext,
    SchedulerView,
    SchedulingPolicy,
)
from hookspecs.contracts.request_view import RequestView
from hookspecs.types.request import FinishReason, RequestStatus
from tests.conformance.mutants.mutant import Mutant, providing

__all__ = ["MUTANTS"]


class KeysOfDifferentShape(SchedulingPolicy):
    def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
        return () if request.deadline is None else (request.deadline,)


class KeysOfDifferentTypes(SchedulingPolicy):
    def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
        return (request.deadline,)


class AgesWithoutSayingSo(SchedulingPolicy):
    """Its keys change, but it does not declare dynamic_order."""

    def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
        return (max(0.0, request.num_prompt_tokens - (view.now - request.arrival_time)),)


class OrdersByName(SchedulingPolicy):
    def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
        return (int.from_bytes(request.request_id.encode()) % 7,)


class DrawsLots(SchedulingPolicy):
    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._random = random.Random()

    def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
        return (self._random.random(),)


class AdmitsByTruth(SchedulingPolicy):
    def admit(self, request: RequestView, view: SchedulerView) -> Admission:
        return True  # type: ignore[return-value]


class CapsInHalves(SchedulingPolicy):
    def cap_tokens(self, view: SchedulerView) -> int | None:
        return 8 / 2  # type: ignore[return-value]


class ExpiresStrangers(SchedulingPolicy):
    def expire(self, view: SchedulerView) -> Iterable[str]:
        return ["nobody"]


class NamesWhomItKnows(SchedulingPolicy):
    """Its victim is the last request that was queued, whether it is asked about that or not."""

    last: RequestView | None = None

    def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
        self.last = request
        return ()

    def select_victim(
        self, candidates: Sequence[RequestView], view: SchedulerView
    ) -> RequestView | None:
        return self.last


class PushesEverybodyOut(SchedulingPolicy):
    def preempts(self, waiting: RequestView, running: RequestView) -> bool | None:
        return True


class ExpiresWhatRuns(SchedulingPolicy):
    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._deadlines: dict[str, float] = {}

    def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
        if request.deadline is not None:
            self._deadlines[request.request_id] = request.deadline
        return ()

    def expire(self, view: SchedulerView) -> Iterable[str]:
        return [name for name, deadline in self._deadlines.items() if deadline < view.now]


class ChangesParameters(SchedulingPolicy):
    def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
        request.sampling_params.max_tokens = 1
        return ()


class ForgetsNobody(SchedulingPolicy):
    """Forgets an aborted request never."""

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._seen: list[RequestView] = []

    def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
        self._seen.append(request)
        return ()


class NeverAdmitsLongPrompts(SchedulingPolicy):
    def admit(self, request: RequestView, view: SchedulerView) -> Admission:
        return Admission.WAIT if request.num_prompt_tokens > 16 else Admission.ADMIT


class LastComeFirstServed(SchedulingPolicy):
    def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
        return (-request.arrival,)


class Rounds(SchedulingPolicy):
    """Serves one request of each tenant a round. A new tenant joins the round under way, so it has
    no end while new ones come."""

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._waiting: dict[str, int] = {}

    def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
        turn = self._waiting.get(request.tenant, 0)
        self._waiting[request.tenant] = turn + 1
        return (turn,)

    def on_finish(self, request: RequestView, reason: FinishReason) -> None:
        self._waiting[request.tenant] -= 1
        if not self._waiting[request.tenant]:
            del self._waiting[request.tenant]


class KeepsTenants(SchedulingPolicy):
    """Counts requests by tenant, for ever."""

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._counts: dict[str, int] = {}

    def on_finish(self, request: RequestView, reason: FinishReason) -> None:
        self._counts[request.tenant] = self._counts.get(request.tenant, 0) + 1


class AdmitsOnce(SchedulingPolicy):
    """Stale state after preemption: who was admitted may not come back."""

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._admitted: set[str] = set()

    def admit(self, request: RequestView, view: SchedulerView) -> Admission:
        if request.request_id in self._admitted and request.num_preemptions:
            return Admission.WAIT
        self._admitted.add(request.request_id)
        return Admission.ADMIT


class WantsToBeAlone(SchedulingPolicy):
    """Keys that work only if no policy comes before or after."""

    def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
        return (request.arrival,)

    def admit(self, request: RequestView, view: SchedulerView) -> Admission:
        if len(self.context.config.scheduler.policies) > 1:
            raise RuntimeError("there is another policy")
        return Admission.ADMIT


class WritesTokens(SchedulingPolicy):
    """Leaks between tenants: shortens what others are given."""

    def admit(self, request: RequestView, view: SchedulerView) -> Admission:
        held: Any = request
        held.max_total_tokens = min(request.max_total_tokens, request.num_prompt_tokens + 1)
        return Admission.ADMIT


class LooksAtEverybody(SchedulingPolicy):
    """Its cost grows with the number of requests that wait."""

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._lengths: dict[str, int] = {}

    def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
        self._lengths[request.request_id] = request.num_prompt_tokens
        total = 0
        for length in self._lengths.values():
            total += length
        return ()


class Moving(SchedulingPolicy):
    """Tenants take turns, and the requests of one move together."""

    capabilities = frozenset({PolicyCapability.DYNAMIC_ORDER})

    def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
        turn = (int(view.now) + len(request.tenant)) % 3
        return (turn, request.status is not RequestStatus.PREEMPTED, request.arrival)

    def order_group(self, request: RequestView) -> Hashable:
        return request.tenant


class CountsQuestions(Moving):
    """Each time that it is asked for a key it is another one."""

    asked = 0

    def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
        self.asked += 1
        return (self.asked,)

    def order_group(self, request: RequestView) -> Hashable:
        return None


class GroupsByList(Moving):
    def order_group(self, request: RequestView) -> Hashable:
        return [request.tenant]  # type: ignore[return-value]


class GroupsByNotANumber(Moving):
    def order_group(self, request: RequestView) -> Hashable:
        return float("nan")


class GroupsAnew(Moving):
    """A group of its own for each question."""

    def order_group(self, request: RequestView) -> Hashable:
        return object()


class GroupsByPlace(Moving):
    """All requests are a group, though tenants take turns."""

    def order_group(self, request: RequestView) -> Hashable:
        return "all"


class OneKeyATenant(Moving):
    """Leaves the order in a group to whoever comes after it."""

    def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
        return super().order_key(request, view)[:1]


class ShortestOfATenant(Moving):
    """In a group prompts that are shorter come first."""

    def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
        turn, *rest = super().order_key(request, view)
        return (turn, request.num_prompt_tokens, *rest)


class PreemptedByArrival(Moving):
    """Stale state after preemption: those that come back have their old place."""

    def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
        turn, _, arrival = super().order_key(request, view)
        return (turn, arrival)


class ChargesWhoAsks(Moving):
    """The requests of a tenant are charged in the order in which their keys are asked for."""

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._now = 0.0
        self._charged: dict[str, dict[str, int]] = {}

    def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
        if view.now != self._now:
            self._now = view.now
            self._charged.clear()
        charged = self._charged.setdefault(request.tenant, {})
        return (charged.setdefault(request.request_id, len(charged)),)

    def on_finish(self, request: RequestView, reason: FinishReason) -> None:
        self._charged.clear()


def _mutant(fault: str, part: type[SchedulingPolicy], *caught_by: str) -> Mutant:
    return Mutant("scheduling_policy", fault, providing("scheduling_policy", part), caught_by)


MUTANTS = [
    _mutant("keys of different lengths", KeysOfDifferentShape, "test_keys_compare"),
    _mutant("keys that do not compare", KeysOfDifferentTypes, "test_keys_compare"),
    _mutant("keys change, undeclared", AgesWithoutSayingSo, "test_keys_stay"),
    _mutant("orders by the request id", OrdersByName, "test_names_do_not_decide"),
    _mutant("orders at random", DrawsLots, "test_same_events_same_schedule"),
    _mutant("admits with a bool", AdmitsByTruth, "test_answers_are_of_their_types"),
    _mutant("caps with a float", CapsInHalves, "test_answers_are_of_their_types"),
    _mutant("expires unknown ids", ExpiresStrangers, "test_answers_are_of_their_types"),
    _mutant("victim that does not run", NamesWhomItKnows, "test_victim_is_a_candidate"),
    _mutant("requests push each other out", PushesEverybodyOut, "test_no_two_push_each_other_out"),
    _mutant("expires running requests", ExpiresWhatRuns, "test_only_waiting_requests_expire"),
    _mutant("changes parameters", ChangesParameters, "test_requests_are_not_changed"),
    _mutant("keeps requests that ended", ForgetsNobody, "test_finished_requests_are_forgotten"),
    _mutant("starves long prompts", NeverAdmitsLongPrompts, "test_everything_ends"),
    _mutant("last come, first served", LastComeFirstServed, "test_nobody_starves"),
    _mutant("new tenants join the round", Rounds, "test_nobody_starves"),
    _mutant("keeps tenants", KeepsTenants, "test_tenants_are_forgotten"),
    _mutant("stale state after preemption", AdmitsOnce, "test_it_survives_preemption_of_all"),
    _mutant("works alone only", WantsToBeAlone, "test_it_stacks"),
    _mutant("cuts outputs short", WritesTokens, "test_tokens_do_not_depend_on_it"),
    _mutant(
        "cost grows with the queue",
        LooksAtEverybody,
        "test_a_key_costs_the_same_in_any_crowd",
    ),
    _mutant("counts questions", CountsQuestions, "test_keys_stay_in_a_step"),
    _mutant("groups that are not hashable", GroupsByList, "test_a_group_stays"),
    _mutant("groups not equal to themselves", GroupsByNotANumber, "test_a_group_stays"),
    _mutant("groups change", GroupsAnew, "test_a_group_stays"),
    _mutant(
        "one group of those that move apart",
        GroupsByPlace,
        "test_groups_keep_their_order",
        "test_groups_decide_nothing",
    ),
    _mutant("ties in a group", OneKeyATenant, "test_groups_keep_their_order"),
    _mutant(
        "orders a group by length",
        ShortestOfATenant,
        "test_groups_keep_their_order",
        "test_groups_decide_nothing",
    ),
    _mutant("preempted ones by arrival", PreemptedByArrival, "test_groups_keep_their_order"),
    _mutant("charges in the order asked", ChargesWhoAsks, "test_groups_keep_their_order"),
]
