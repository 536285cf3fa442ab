"""Second pass of a step: waiting requests start while there is room."""

from __future__ import annotations

from enum import Enum, auto

from builtin_plugins.scheduler_continuous.in_flight import PrefixesInFlight
from builtin_plugins.scheduler_continuous.lane import WaitingRequest
from builtin_plugins.scheduler_continuous.plan import StepPlan
from builtin_plugins.scheduler_continuous.queues import Queues
from builtin_plugins.scheduler_continuous.running import RunningRequest
from hookspecs.contracts.request_view import RequestView
from hookspecs.types.kv import CachedPrefix
from hookspecs.types.request import FinishReason, RequestStatus

__all__ = ["AdmissionPass"]

_FROM_FRONT = 64
"""Requests that a step passes over from the front of the queue."""
_IN_TURN = 192
"""Requests that it passes over besides, in turn through the whole queue."""


class _Outcome(Enum):
    STARTED = auto()
    PASSED_OVER = auto()
    ENDED = auto()
    NO_ROOM = auto()


class AdmissionPass:
    """Starts waiting requests, first in order first, until one finds no room.

    What one step costs does not grow with the number of requests that policies hold back: it
    passes over at most 64 from the front of the queue, then at most 192 that have not had their
    turn. So the order counts among the first at every step, and whoever waits behind them is
    considered after at most n / 192 steps, unless one before it finds no room.

    A request starts when all its tokens fit into free blocks that no half-computed prompt
    still needs, even if the first chunk is smaller: two prompts that each hold half of the
    cache would only push each other out. With nothing running the first chunk is enough.

    One of whose prompt another computes, in this step, the block that comes next after what the
    cache has, waits: in the next step it finds that in the cache. Its slot and blocks are kept for
    it, and where a step brought it nothing it does not wait again.
    """

    def __init__(
        self, queues: Queues, plan: StepPlan, most_per_row: int, in_flight: PrefixesInFlight | None
    ) -> None:
        """`in_flight`: None where nothing is cached."""
        self._queues = queues
        self._plan = plan
        self._in_flight = in_flight
        self._most_per_row = most_per_row
        self._owed: int | None = None
        """Blocks that half-computed prompts still need; None: not counted yet."""
        self._kept_slots = 0
        self._kept_blocks = 0
        """For those that wait for a prefix."""
        self._started: set[str] = set()

    def run(self) -> None:
        """Start what can start."""
        waiting, policies = self._queues.waiting, self._queues.policies
        if policies.dynamic_order:
            waiting.rekey(policies.key)
        waiting.begin_pass()
        for take, most in ((waiting.first, _FROM_FRONT), (waiting.next_in_turn, _IN_TURN)):
            passed_over = 0
            while passed_over < most:
                entry = take()
                outcome = _Outcome.NO_ROOM if entry is None else self._consider(entry)
                if entry is None or outcome is _Outcome.NO_ROOM:
                    waiting.end_round()
                    return
                if outcome is _Outcome.PASSED_OVER:
                    waiting.pass_over(entry)
                    passed_over += 1

    def _consider(self, entry: WaitingRequest) -> _Outcome:
        request = entry.request
        if request.request_id in self._plan.preempted:
            # Pushed out in this step: what is left is not for those behind it either.
            return _Outcome.NO_ROOM
        admits = self._queues.policies.admit
        if self._fits_without_hits(request):
            # A search of the cache that a request held back would not use is saved.
            if not admits(request):
                return _Outcome.PASSED_OVER
            if self._waits_for_prefix(entry):
                return _Outcome.PASSED_OVER
            cached = self._find_room(request)
        else:
            cached = self._find_room(request)
            victims = [] if cached is not None else self._pushable(entry)
            if cached is None and not victims:
                return _Outcome.NO_ROOM if len(self._queues.running) else self._refuse(request)
            if not admits(request):
                return _Outcome.PASSED_OVER
            for victim in victims:
                self._push_out(victim)
                cached = self._find_room(request)
                if cached is not None:
                    break
        if cached is None:
            return _Outcome.NO_ROOM if len(self._queues.running) else self._refuse(request)
        self._start(entry, cached)
        return _Outcome.STARTED

    def _waits_for_prefix(self, entry: WaitingRequest) -> bool:
        """Whether it had better start in the next step; then room is kept for it."""
        in_flight, request, kv = self._in_flight, entry.request, self._queues.kv
        if in_flight is None or not in_flight.may_serve(request):
            return False
        num_cached = kv.lookup(request).num_tokens
        if num_cached <= entry.waited_at or not in_flight.continue_prefix(request, num_cached):
            return False
        entry.waited_at = num_cached
        self._kept_slots += 1
        self._kept_blocks += kv.blocks_for(request.num_tokens)
        return True

    @property
    def _has_turn(self) -> bool:
        """Whether the step has room for tokens of one more request, and a slot is free."""
        return self._plan.budget > 0 and self._free_slots > 0

    @property
    def _free_slots(self) -> int:
        return self._queues.table.num_free_slots - self._kept_slots

    def _fits_without_hits(self, request: RequestView) -> bool:
        """Whether there is room whatever the cache holds of the request."""
        kv = self._queues.kv
        if not self._has_turn:
            return False
        return kv.blocks_for(request.num_tokens) + self._count_owed() <= kv.num_free_blocks

    def _find_room(self, request: RequestView) -> CachedPrefix | None:
        """The cached prefix with which the request can start now; None: there is no room."""
        if not self._has_turn:
            return None
        kv = self._queues.kv
        cached = kv.lookup(request)
        if not kv.can_allocate(request, self._chunk_end(request, cached), cached):
            return None
        if not len(self._queues.running):
            return cached
        # Exact with prefix hits when nobody else needs blocks, without them otherwise.
        owed = self._count_owed()
        if kv.blocks_for(request.num_tokens) + owed <= kv.num_free_blocks:
            return cached
        if not owed and kv.can_allocate(request, request.num_tokens, cached):
            return cached
        return None

    def _chunk_end(self, request: RequestView, cached: CachedPrefix) -> int:
        """Tokens computed after a first chunk in this step."""
        most = min(self._plan.budget, self._most_per_row)
        return min(request.num_tokens, cached.num_tokens + most)

    def _start(self, entry: WaitingRequest, cached: CachedPrefix) -> None:
        end = self._chunk_end(entry.request, cached)
        self._count_owed()
        new = self._queues.start(entry, cached, end)
        self._plan.start(new, end - cached.num_tokens)
        self._started.add(new.request_id)
        if self._in_flight is not None:
            self._in_flight.add(entry.request, cached.num_tokens)
        assert self._owed is not None
        self._owed += self._blocks_to_come(new.slot)

    def _count_owed(self) -> int:
        """Blocks that are free and yet not for the next that starts."""
        if self._owed is None:
            queues = self._queues
            slots = queues.running.slots
            short = slots[queues.table.num_tokens[slots] > queues.kv.capacity[slots]]
            self._owed = sum(map(self._blocks_to_come, short.tolist()))
        return self._owed + self._kept_blocks

    def _blocks_to_come(self, slot: int) -> int:
        """Blocks that the known tokens of a running request need beyond those it has."""
        kv, num_tokens = self._queues.kv, int(self._queues.table.num_tokens[slot])
        return max(0, kv.blocks_for(num_tokens) - kv.blocks_for(int(kv.capacity[slot])))

    def _pushable(self, entry: WaitingRequest) -> list[RunningRequest]:
        """Running requests after it in the order, last first, that policies let it push out;
        empty if even all of them would not make room.

        One that was preempted pushes nobody out: two requests can not push each other in turn.
        """
        queues, plan, request = self._queues, self._plan, entry.request
        if request.status is not RequestStatus.WAITING or not len(queues.running):
            return []
        if queues.policies.dynamic_order:
            queues.running.rekey(queues.policies.key)
        needed = queues.kv.blocks_for(request.num_tokens) + self._count_owed()
        blocks, slots = queues.kv.num_free_blocks, self._free_slots
        budget, room = plan.left, plan.prompt_room
        victims: list[RunningRequest] = []
        for running in reversed(queues.running.order):
            if not entry.key < running.key or not self._can_be_pushed(running):
                break
            if not queues.policies.preempts(request, running.request):
                break
            row = plan.row_of(running)
            enough = blocks >= needed and slots > 0 and budget > 0
            if enough and room <= 0 and not plan.is_prompt(row):
                continue  # only room for prompts is short, of which it takes none
            victims.append(running)
            # At most: blocks shared with others do not become free.
            blocks += queues.kv.blocks_for(int(queues.kv.capacity[running.slot]))
            needed -= self._blocks_to_come(running.slot)
            slots += 1
            budget += int(plan.scheduled[row])
            room += int(plan.scheduled[row]) if plan.is_prompt(row) else 0
            if blocks >= needed and slots > 0 and budget > 0 and room > 0:
                return victims
        return []

    def _can_be_pushed(self, running: RunningRequest) -> bool:
        """Not if it started in this step, or was ended in it and only waits for the kernel."""
        request = running.request
        return request.request_id not in self._started and not self._queues.is_ending(request)

    def _push_out(self, victim: RunningRequest) -> None:
        self._plan.take_back(self._plan.row_of(victim))
        self._plan.preempted.add(victim.request.request_id)
        self._owed = None
        self._queues.preempt(victim)

    def _refuse(self, request: RequestView) -> _Outcome:
        """Nothing runs and still there is no room: waiting longer would not help."""
        if not self._has_turn or self._kept_blocks:
            return _Outcome.NO_ROOM
        self._queues.end(
            request,
            FinishReason.ERROR,
            f"request {request.request_id!r} of {request.num_tokens} tokens does not fit into "
            f"the KV cache of {self._queues.kv.num_total_blocks} blocks; raise cache.num_blocks "
            "or shorten the prompt",
        )
        return _Outcome.ENDED
