"""Suite of schedulers, in a mini kernel and in a real engine."""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from framework.conformance.base import Conformance, lacking, requires
from framework.conformance.subject import Subject
from framework.conformance.worlds.cost import lines_of
from framework.conformance.worlds.engines import greedy, prompts_of, run_prompts
from framework.conformance.worlds.makers import PartMaker, kernel_around
from framework.conformance.worlds.mini_kernel import FULL, MiniKernel, sliding
from framework.conformance.worlds.spied_cache import CacheFault, SpiedCache, spying
from framework.conformance.worlds.told_policy import MovingPolicy, PolicyFault, ToldPolicy
from framework.conformance.worlds.workload import play, random_sizes, seeds, workload
from framework.core.request import Request
from hookspecs.config import EngineConfig
from hookspecs.contracts.scheduler import SchedulerCapability
from hookspecs.types.kv import KVCacheGroup
from hookspecs.types.request import FinishReason, RequestStatus
from hookspecs.types.step import SchedulerOutput

__all__ = ["SchedulerConformance"]

WORKLOADS = 24
"""Random workloads of a test."""
BOUND = 2000
"""Steps in which a workload that needs a few hundred must be done."""
GROUPS: tuple[tuple[KVCacheGroup, ...], ...] = ((FULL,), (sliding(5),), (FULL, sliding(3)))


class SchedulerConformance(Conformance):
    """Schedulers decide who computes how many tokens, and keep what they are lent in order."""

    kind = "scheduler"

    @pytest.fixture
    def make(self, subject: Subject) -> PartMaker:
        """Makes the scheduler, and the parts around it that the configuration names."""
        return PartMaker(subject)

    @pytest.fixture
    def told(self) -> ToldPolicy:
        """The only policy of a kernel: it does as it is told."""
        return ToldPolicy()

    # Random workloads

    def test_everything_ends(self, make: PartMaker, seed: int) -> None:
        """Requires nothing.
        Does: random workloads with aborts and deadlines, few blocks, slots and tokens, with and
        without prefix caching, with full attention, sliding windows and both.
        Must: let every request end once and none with an error, keep the budget and the other
        invariants of the kernel at every step, and leak no block.
        """
        for number in seeds(seed, WORKLOADS):
            groups = GROUPS[number % len(GROUPS)]
            sizes = random_sizes(number)
            sizes["num_blocks"] += 16 * (len(groups) - 1)
            kernel = kernel_around(
                make, **sizes, groups=groups, enable_prefix_caching=bool(number % 2)
            )
            load = workload(number)
            play(kernel, load, limit=BOUND)
            assert len(kernel.ended) == len(load.arrivals), "a request ended without a trace"
            failed = [name for name, why in kernel.ended.items() if why is FinishReason.ERROR]
            assert not failed, f"{failed} ended with an error (workload seed {number})"
            _assert_empty(kernel, f"workload seed {number}")

    def test_it_survives_failures_and_controls(self, make: PartMaker, seed: int) -> None:
        """Requires nothing.
        Does: random requests, among which rows fail, are aborted, are all preempted, and the cache
        is reset, at random.
        Must: break no invariant, count truthfully all the time, and bring what is left to its end.
        """
        for number in seeds(seed, WORKLOADS):
            kernel = kernel_around(make, **random_sizes(number))
            try:
                _disturb(kernel, random.Random(number))
            except Exception as error:
                error.add_note(f"in the disturbed workload of seed {number}")
                raise
            _assert_empty(kernel, f"disturbed workload of seed {number}")

    def test_nobody_starves(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: keeps the engine busy with small requests that come later than a large one.
        Must: let the large one start within a bounded number of steps.
        """
        kernel = kernel_around(make, num_blocks=8, max_num_seqs=4, policies=())
        for _ in range(4):
            kernel.add(2, 3)
        kernel.step()
        large = kernel.add(20, 2)
        for _ in range(BOUND // 10):
            if large.finished or large.status is not RequestStatus.WAITING:
                return
            while kernel.scheduler.num_waiting < 12:
                kernel.add(2, 3)
            kernel.step()
        raise AssertionError(
            f"a request of 22 tokens had not started after {BOUND // 10} steps, in a cache that it "
            "fits into, while small ones that came later did"
        )

    def test_same_events_same_schedule(self, make: PartMaker, seed: int) -> None:
        """Requires nothing.
        Does: runs workloads twice, each with new parts.
        Must: decide the same both times.
        """
        for number in seeds(seed, WORKLOADS // 4):
            load, sizes = workload(number), random_sizes(number)
            first, second = (play(kernel_around(make, **sizes), load) for _ in range(2))
            assert first == second, f"two schedules of one workload (seed {number})"

    def test_names_do_not_decide(self, make: PartMaker, seed: int) -> None:
        """Requires nothing.
        Does: runs workloads twice, with other request ids the second time.
        Must: decide the same; ids are names, not ranks.
        """
        for number in seeds(seed, WORKLOADS // 4):
            load, sizes = workload(number), random_sizes(number)
            plain = play(kernel_around(make, **sizes), load)
            other = play(kernel_around(make, **sizes), load, prefix="zebra-")
            renamed = [tuple((n.replace("zebra-", "r"), c) for n, c in step) for step in other]
            assert plain == renamed, f"with other ids another schedule (workload seed {number})"

    # Tokens

    def test_long_prompts_are_computed_in_chunks(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: runs a prompt of 50 tokens at 8 tokens a step, before and after a short one.
        Must: compute it in several steps; no capability says that it could not.
        """
        kernel = kernel_around(make, max_num_batched_tokens=8, num_blocks=64)
        requests = [kernel.add(3, 2), kernel.add(50, 2), kernel.add(3, 2)]
        for _ in range(100):
            if not kernel.requests:
                break
            kernel.step()
        left = [request.request_id for request in requests if not request.finished]
        assert not left, f"{left} had not ended after 100 steps of 8 tokens"

    def test_the_threshold_is_followed(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: sets scheduler.long_prefill_token_threshold to 5, and runs long prompts.
        Must: compute at most 5 prompt tokens of a request in a step.
        """
        kernel = kernel_around(
            make, num_blocks=64, long_prefill_token_threshold=5, max_num_batched_tokens=32
        )
        for length in (40, 5, 6, 17):
            kernel.add(length, 2)
        most = _largest_chunk(kernel)
        assert most <= 5, (
            f"{most} prompt tokens of one request in a step; the setting "
            "scheduler.long_prefill_token_threshold is 5"
        )

    def test_caps_are_kept(self, make: PartMaker, told: ToldPolicy, seed: int) -> None:
        """Requires nothing.
        Does: lets a policy cap the tokens of each step, at random, also below 1.
        Must: give out at most that many, at least one, and get everything done.
        """
        rng = random.Random(seed)
        kernel = kernel_around(make, policies=[told], num_blocks=64)
        for length in (20, 9, 3, 14, 1):
            kernel.add(length, 4)
        for _ in range(500):
            if not kernel.requests:
                return
            told.cap = rng.choice((-1, 0, 1, 3, 7, None))
            tokens = sum(kernel.schedule_of_next_step().values())
            most = 32 if told.cap is None else max(1, told.cap)
            assert tokens <= most, f"{tokens} tokens in a step that a policy capped at {told.cap}"
        raise AssertionError(f"{sorted(kernel.requests)} not done after 500 steps with caps")

    # Order and policies

    def test_requests_start_in_order(self, make: PartMaker, told: ToldPolicy, seed: int) -> None:
        """Requires nothing.
        Does: queues equally long requests of random priorities, with room for some each step.
        Must: start them in the order of their keys.
        """
        kernel = kernel_around(
            make, policies=[told], num_blocks=64, max_num_seqs=3, max_num_batched_tokens=8
        )
        rng = random.Random(seed)
        requests = [kernel.add(4, rng.randint(1, 5), priority=rng.randint(0, 3)) for _ in range(16)]
        order = [r.request_id for r in sorted(requests, key=lambda r: (r.priority, r.arrival))]
        started: set[str] = set()
        for _ in range(BOUND):
            if not kernel.requests:
                return
            started |= kernel.schedule_of_next_step().keys()
            expected = order[: len(started)]
            assert started == set(expected), (
                f"started {sorted(started - set(expected))} before "
                f"{sorted(set(expected) - started)}, which come first in the order"
            )
        raise AssertionError(f"{len(kernel.requests)} requests still there after {BOUND} steps")

    def test_keys_are_asked_for_when_queued(self, make: PartMaker, told: ToldPolicy) -> None:
        """Requires nothing.
        Does: counts how often a policy without dynamic_order is asked for keys.
        Must: ask once when a request is queued, and again when it was preempted.
        """
        kernel = kernel_around(make, policies=[told], max_num_seqs=2, num_blocks=64)
        requests = [kernel.add(3, 6) for _ in range(4)]
        for _ in range(3):
            kernel.step()
        wrong = {r.request_id: told.keys[r.request_id] for r in requests}
        assert set(wrong.values()) == {1}, f"keys were asked for so often, not once each: {wrong}"
        kernel.scheduler.preempt_all()
        for _ in range(2):
            kernel.step()
        again = {r.request_id: told.keys[r.request_id] - r.num_preemptions for r in requests}
        assert set(again.values()) == {1}, (
            f"keys were asked for so often, preemptions not counted, and not once each: {again}"
        )

    def test_moving_keys_are_asked_for_anew(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: changes what a policy with dynamic_order answers while requests wait.
        Must: start them in the order that the keys have now.
        """
        moving = MovingPolicy()
        kernel = kernel_around(make, policies=[moving], max_num_seqs=1, num_blocks=64)
        kernel.add(3, 3, priority=-1)
        first, second = kernel.add(3, 1, priority=0), kernel.add(3, 1, priority=1)
        kernel.step()
        moving.ranks = {first.request_id: 9, second.request_id: 8}
        kernel.run(BOUND)
        ended = [name for name in kernel.ended if name != "r0"]
        assert ended == [second.request_id, first.request_id], (
            f"{ended} ran in this order, that of the keys which they had when queued"
        )

    def test_preempted_requests_come_first(self, make: PartMaker, told: ToldPolicy) -> None:
        """Requires nothing.
        Does: preempts all of those that run while others wait, all of one priority.
        Must: let the preempted ones come back first, as their keys say.
        """
        kernel = kernel_around(make, policies=[told], max_num_seqs=2, num_blocks=64)
        kernel.add(3, 1)
        kernel.step()
        ahead = [kernel.add(3, 9, priority=1) for _ in range(2)]
        kernel.step()
        late = [kernel.add(3, 9, priority=1) for _ in range(2)]
        told.ranks = dict.fromkeys([r.request_id for r in [*ahead, *late]], 0)
        kernel.scheduler.preempt_all()
        ran = set(kernel.schedule_of_next_step())
        assert ran == {request.request_id for request in ahead}, (
            f"after preempt_all {sorted(ran)} ran, and not those that were preempted"
        )

    def test_who_is_held_back_holds_back_nobody(self, make: PartMaker, told: ToldPolicy) -> None:
        """Requires nothing.
        Does: lets a policy answer WAIT for the first requests of the queue, then admit them.
        Must: not start them, consider those behind them, and start them once they are admitted.
        """
        kernel = kernel_around(make, policies=[told], max_num_seqs=4, num_blocks=64)
        held = [kernel.add(3, 2) for _ in range(3)]
        free = [kernel.add(3, 2) for _ in range(2)]
        told.held = {request.request_id for request in held}
        for _ in range(8):
            ran = set(kernel.schedule_of_next_step())
            assert not ran & told.held, f"{sorted(ran & told.held)} ran, which a policy held back"
        waiting = [r.request_id for r in free if r.status is RequestStatus.WAITING]
        assert not waiting, f"{waiting} did not start, behind others that are held back"
        told.held = set()
        kernel.run(100)
        assert all(kernel.ended[r.request_id] is FinishReason.LENGTH for r in held)

    def test_expired_requests_end_with_timeout(self, make: PartMaker, told: ToldPolicy) -> None:
        """Requires nothing.
        Does: lets a policy name waiting requests as late, one of them twice, with room to start.
        Must: end them with `timeout` before they run, asking once a step, and nobody else.
        """
        kernel = kernel_around(make, policies=[told], num_blocks=64)
        late, fine = [kernel.add(3, 2) for _ in range(2)], kernel.add(3, 2)
        told.late = [late[0].request_id, late[1].request_id, late[0].request_id]
        ran = kernel.schedule_of_next_step()
        assert told.expire_calls == 1, f"expire was asked {told.expire_calls} times in a step"
        assert set(ran) == {fine.request_id}, f"{sorted(ran)} ran; {told.late} are late"
        for request in late:
            reason = kernel.ended.get(request.request_id)
            assert reason is FinishReason.TIMEOUT, (
                f"{request.request_id} was named by expire, and ended with {reason!r}"
            )
        kernel.run(100)
        _assert_empty(kernel, "after a timeout")

    def test_what_does_not_wait_does_not_expire(self, make: PartMaker, told: ToldPolicy) -> None:
        """Requires nothing.
        Does: lets a policy name a request that runs, one that has ended and one that never was.
        Must: ignore all three.
        """
        kernel = kernel_around(make, policies=[told], num_blocks=64)
        done = kernel.add(3, 1)
        kernel.step()
        running = kernel.add(3, 4)
        kernel.step()
        told.late = [running.request_id, done.request_id, "nobody"]
        kernel.run(100)
        reason = kernel.ended[running.request_id]
        assert reason is FinishReason.LENGTH, f"expire named a request that ran: {reason!r}"

    def test_policies_hear_how_requests_end(self, make: PartMaker, told: ToldPolicy) -> None:
        """Requires nothing.
        Does: lets requests end by their length, an abort, a failure and a timeout.
        Must: pass each end on to the policies, once, with its reason.
        """
        kernel = kernel_around(make, policies=[told], num_blocks=64, max_num_seqs=3)
        kernel.add(3, 2)
        failing, aborted, late = (kernel.add(3, 9) for _ in range(3))
        kernel.step()
        kernel.step(fail=[failing])
        kernel.abort(aborted)
        told.late = [late.request_id] if late.status is RequestStatus.WAITING else []
        kernel.run(100)
        expected = sorted(kernel.ended.items())
        assert sorted(told.finished) == expected, (
            f"policies were told {sorted(told.finished)}; requests ended as {expected}"
        )

    # States

    def test_abort_in_any_state(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: aborts a request while it waits, while it runs, and while it is preempted.
        Must: drop it, run the others, and take a new one of the same id.
        """
        for state in (RequestStatus.WAITING, RequestStatus.RUNNING, RequestStatus.PREEMPTED):
            kernel = kernel_around(make, num_blocks=64)
            kernel.add(6, 4)
            victim = kernel.add(6, 30)
            if state is not RequestStatus.WAITING:
                kernel.step()
                kernel.step()
            if state is RequestStatus.PREEMPTED:
                kernel.scheduler.preempt_all()
            assert victim.status is state, f"the request is {victim.status.name}, not {state.name}"
            kernel.abort(victim)
            _assert_counts(kernel)
            for _ in range(3):
                ran = kernel.schedule_of_next_step()
                assert victim.request_id not in ran, "an aborted request was scheduled"
            again = kernel.add(6, 2, request_id=victim.request_id)
            kernel.run(100)
            reason = kernel.ended[again.request_id]
            assert reason is FinishReason.LENGTH, f"the new one of its id ended by {reason!r}"
            _assert_empty(kernel, f"after an abort while {state.name}")

    def test_counts_are_true(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: compares num_waiting and num_running with the states of all requests, at every step.
        Must: count exactly those that hold a slot as running, all others as waiting.
        """
        kernel = kernel_around(make, max_num_seqs=3, num_blocks=20)
        _assert_counts(kernel)
        for number in range(9):
            kernel.add(4 + number, 5)
            _assert_counts(kernel)
        for step in range(BOUND):
            if not kernel.requests:
                break
            kernel.step()
            _assert_counts(kernel)
            if step in (1, 4):
                kernel.scheduler.preempt_all()
                _assert_counts(kernel)
        _assert_empty(kernel, "after all have ended")

    def test_preempt_all(self, make: PartMaker) -> None:
        """Requires nothing: the kernel asks for it before it clears the cache.
        Does: preempts all, several times and twice in a row, with prompts half computed.
        Must: take slot and blocks from everyone, and let all come back and get the same tokens.
        """
        disturbed, quiet = (
            kernel_around(make, num_blocks=64, max_num_batched_tokens=16) for _ in range(2)
        )
        tokens = []
        for kernel in (disturbed, quiet):
            requests = [kernel.add(3 + 9 * number, 6) for number in range(5)]
            for _ in range(6 if kernel is disturbed else 0):
                kernel.step()
                kernel.step()
                for _ in range(2):
                    kernel.scheduler.preempt_all()
                    running = kernel.table.num_running
                    assert not running, f"preempt_all left {running} requests in their slots"
                    in_use = kernel.kv.blocks_in_use()
                    assert not in_use, f"preempt_all left {in_use} blocks in use"
                    _assert_counts(kernel)
                assert kernel.kv.reset_prefix_cache(), "the cache can not be reset"
            kernel.run(BOUND)
            tokens.append([request.output_token_ids for request in requests])
        assert tokens[0] == tokens[1], "preempt_all changed the tokens of requests"

    def test_an_idle_step_is_empty(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: asks for steps before there is a request, and after the last has ended.
        Must: give an output without rows, blocks and new requests.
        """
        kernel = kernel_around(make)
        outputs: list[SchedulerOutput] = []
        for _ in range(2):
            outputs += [kernel.step(), kernel.step()]
            kernel.add(3, 1)
            kernel.run(10)
        for output in outputs:
            assert output.num_rows == 0 and not output.new_requests, f"an idle step has {output}"
            assert not any(len(columns.slots) for columns in output.new_blocks), (
                "an idle step appends blocks"
            )

    def test_requests_that_ended_are_forgotten(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: lets requests end in all ways.
        Must: keep no reference to them: an engine serves millions.
        """
        kernel = kernel_around(make, num_blocks=12, max_num_seqs=3)
        for number in range(12):
            kernel.add(3 + number, 4, request_id=f"forget-{number}")
        kernel.step()
        kernel.scheduler.preempt_all()
        for number in (0, 11):
            kernel.abort(kernel.requests[f"forget-{number}"])
        kernel.run(BOUND)
        kernel.add(3, 1)
        kernel.run(BOUND)
        gc.collect()
        kept = [
            each.request_id
            for each in gc.get_objects()
            if isinstance(each, Request) and each.request_id.startswith("forget-")
        ]
        assert not kept, f"requests that ended are still referenced: {sorted(kept)}"

    # The cache

    def test_a_start_keeps_to_its_protocol(self, make: PartMaker, seed: int) -> None:
        """Requires nothing.
        Does: watches what is asked of the cache while requests with common prefixes start, are
        preempted and resume.
        Must: look up, start, allocate with what was found, compute from there, and record the
        lookup once each time a request starts.
        """
        kernel, spy = _spied(make, num_blocks=40)
        starts: dict[str, list[int]] = {}

        def note(output: SchedulerOutput) -> None:
            for new in output.new_requests:
                starts.setdefault(new.request_id, []).append(new.num_computed_tokens)

        kernel.on_scheduled = note
        shared = list(range(50, 62))
        requests = []
        for number in range(6):
            requests.append(kernel.add([*shared, number], 6))
            kernel.step()
            if number == 3:
                kernel.scheduler.preempt_all()
        kernel.run(BOUND)
        for request in requests:
            name = request.request_id
            recorded = spy.calls_of(name, "record_lookup")
            assert len(recorded) == len(starts[name]), (
                f"{name} started {len(starts[name])} times; record_lookup was called "
                f"{len(recorded)} times for it"
            )
            taken = [c for c in spy.calls_of(name, "allocate") if c.cached is not None]
            for allocated, record, computed in zip(taken, recorded, starts[name], strict=False):
                assert allocated.status is RequestStatus.RUNNING, (
                    f"{name} was given blocks while {allocated.status.name}; start comes first"
                )
                assert record.cached == allocated.cached, (
                    f"{name} took over {allocated.cached}, but {record.cached} was recorded"
                )
                assert allocated.cached is not None and computed == allocated.cached.num_tokens, (
                    f"{name} starts with {computed} computed tokens, with blocks of "
                    f"{allocated.cached}"
                )
                looked = [c.cached for c in spy.calls_of(name, "lookup")]
                assert allocated.cached in looked, (
                    f"{name} took over {allocated.cached}, which lookup did not find: {looked}"
                )

    def test_cached_prefixes_are_used(self, make: PartMaker) -> None:
        """Requires nothing: where the configured cache keeps no prefixes, nothing is found.
        Does: runs a prompt again whose beginning the cache holds.
        Must: compute only what was not found.
        """
        kernel, spy = _spied(make, num_blocks=40)
        prompt = list(range(50, 66))
        kernel.add(prompt, 1)
        kernel.run(100)
        again = kernel.add([*prompt, 7, 8], 1)
        found = spy.real.lookup(again).num_tokens
        ran = kernel.schedule_of_next_step()
        assert ran == {again.request_id: 18 - found}, (
            f"{found} of 18 tokens are cached; the first step computes {ran}"
        )

    def test_blocks_are_freed_before_a_preemption(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: watches which blocks are freed for whom when all are preempted.
        Must: free those of each request, while it still runs.
        """
        kernel, spy = _spied(make, num_blocks=40)
        requests = [kernel.add(6, 6) for _ in range(3)]
        kernel.step()
        kernel.scheduler.preempt_all()
        for request in requests:
            freed = [call.status for call in spy.calls_of(request.request_id, "free")]
            assert freed == [RequestStatus.RUNNING], (
                f"the blocks of {request.request_id} were freed while it was {freed}"
            )

    # Preemption

    @requires(SchedulerCapability.PREEMPTION)
    def test_policies_choose_the_victim(self, make: PartMaker, told: ToldPolicy) -> None:
        """Requires the capability preemption.
        Does: lets running requests outgrow a tiny cache, with a policy that chooses victims.
        Must: preempt only whom the policy chose, and bring all to their end.
        """
        kernel = kernel_around(make, policies=[told], num_blocks=6)
        requests = [kernel.add(3 + number, 14) for number in range(4)]
        kernel.run(BOUND)
        preempted = Counter({r.request_id: r.num_preemptions for r in requests})
        chosen = Counter(told.victims)
        assert preempted <= chosen, (
            f"were preempted so often: {preempted}; policies chose them so often: {chosen}"
        )
        assert set(kernel.ended.values()) == {FinishReason.LENGTH}, f"ended as {kernel.ended}"

    @requires(SchedulerCapability.PREEMPTION)
    def test_who_may_push_out_does(self, make: PartMaker, told: ToldPolicy) -> None:
        """Requires the capability preemption.
        Does: queues an urgent request behind others in all slots, with a policy that lets it push
        them out.
        Must: run it before they end, and bring them to their end afterwards.
        """
        kernel = kernel_around(make, policies=[told], max_num_seqs=2, num_blocks=64)
        told.pushes = True
        for _ in range(2):
            kernel.add(3, 40, priority=5)
        kernel.step()
        urgent = kernel.add(3, 2, priority=0)
        kernel.run(BOUND)
        assert next(iter(kernel.ended)) == urgent.request_id, (
            f"the urgent request did not push out any: they ended as {list(kernel.ended)}"
        )

    @requires(SchedulerCapability.PREEMPTION)
    def test_nobody_is_pushed_out_unasked(self, make: PartMaker, told: ToldPolicy) -> None:
        """Requires the capability preemption.
        Does: queues an urgent request behind others in all slots, with a policy that says no, and
        with one that has no opinion.
        Must: let the others run to their end.
        """
        for answer in (False, None):
            kernel = kernel_around(make, policies=[told], max_num_seqs=2, num_blocks=64)
            told.pushes = answer
            running = [kernel.add(3, 9, priority=5) for _ in range(2)]
            kernel.step()
            kernel.add(3, 2, priority=0)
            kernel.run(BOUND)
            pushed = [r.request_id for r in running if r.num_preemptions]
            assert not pushed, f"{pushed} were pushed out, though preempts answered {answer}"

    @lacking(SchedulerCapability.PREEMPTION)
    def test_without_preemption_nobody_is_preempted(
        self, make: PartMaker, told: ToldPolicy
    ) -> None:
        """Requires a scheduler that does not declare preemption.
        Does: runs more than a tiny cache holds, with a policy that would push out everybody.
        Must: preempt nobody, and still bring all to their end.
        """
        told.pushes = True
        kernel = kernel_around(make, policies=[told], num_blocks=6, max_num_seqs=4)
        requests = [kernel.add(3 + number, 14, priority=-number) for number in range(4)]
        kernel.run(BOUND)
        preempted = [request.request_id for request in requests if request.num_preemptions]
        assert not preempted, f"{preempted} were preempted, and preemption is not declared"
        assert set(kernel.ended.values()) == {FinishReason.LENGTH}, f"ended as {kernel.ended}"

    # Faults of others

    def test_errors_of_policies_come_out(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: lets a policy raise in each of its methods.
        Must: let the exception out; the kernel names its plugin and stops the engine.
        """
        for method in ("order_key", "admit", "expire", "cap_tokens", "on_finish"):
            told = ToldPolicy()
            kernel = kernel_around(make, policies=[told])
            kernel.step()
            told.fault = method
            with pytest.raises(PolicyFault):
                kernel.add(3, 2)
                kernel.run(20)
                raise AssertionError(f"an exception of a policy's {method} was swallowed")

    def test_errors_of_the_cache_come_out(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: lets the KV cache manager raise.
        Must: let the exception out; the kernel names its plugin and stops the engine.
        """
        for method in ("lookup", "allocate"):
            kernel, spy = _spied(make, num_blocks=40)
            kernel.add(3, 9)
            spy.fault = method
            with pytest.raises(CacheFault):
                kernel.run(20)
                raise AssertionError(f"an exception of the cache's {method} was swallowed")

    # Cost

    def test_a_step_costs_in_proportion(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: counts the lines that a step executes with 20 and with 400 requests that wait behind
        full slots.
        Must: not grow faster than their number.
        """
        costs = []
        for crowd in (20, 400):
            kernel = kernel_around(make, max_num_seqs=2, num_blocks=64, policies=())
            for _ in range(crowd):
                kernel.add(3, 40)
            kernel.step()
            kernel.view.refresh()
            costs.append(lines_of(kernel.scheduler.schedule))
        small, large = costs
        assert large <= 25 * small, (
            f"a step executes {small} lines with 20 waiting requests, {large} with 400"
        )

    # In an engine

    def test_tokens_do_not_depend_on_it(self, subject: Subject, seed: int) -> None:
        """Requires nothing.
        Does: generates in a real engine with a small cache, and with the default scheduler.
        Must: change when requests run, never what they get.
        """
        with subject.launch(cache={"num_blocks": 12}) as engine:
            own = run_prompts(engine, seed)
        with subject.launch(scheduler={"name": EngineConfig().scheduler.name}) as engine:
            default = run_prompts(engine, seed)
        assert own == default, "other tokens than with the default scheduler"

    def test_control_of_an_engine(self, subject: Subject, seed: int) -> None:
        """Requires nothing.
        Does: resets the cache of a real engine under running requests, pauses and resumes it.
        Must: let all requests go on, with the tokens that they would have had.
        """
        prompts, params = prompts_of(seed, count=3), greedy(12)
        with subject.launch() as engine:
            expected = [out.outputs[0].token_ids for out in engine.generate(prompts, params)]
            streams = [engine.stream(prompt, params) for prompt in prompts]
            tokens = [[*next(stream).outputs[0].token_ids] for stream in streams]
            assert engine.reset_prefix_cache(preempt_running=True), "the cache was not reset"
            engine.pause("keep")
            engine.resume()
            for own, stream in zip(tokens, streams, strict=True):
                own += [token for out in stream for token in out.outputs[0].token_ids]
        assert tokens == expected, "a reset of the cache, or a pause, changed the tokens"


def _spied(make: PartMaker, **sizes: Any) -> tuple[MiniKernel, SpiedCache]:
    kernel = MiniKernel(spying(make), policies=make.policies(), **sizes)
    assert isinstance(kernel.kv, SpiedCache)
    return kernel, kernel.kv


def _largest_chunk(kernel: MiniKernel) -> int:
    """The most prompt tokens of a request in a step, over a whole run."""
    chunks = [0]

    def note(output: SchedulerOutput) -> None:
        for row in output.rows():
            prompt = kernel.table.at(row.slot).num_prompt_tokens
            chunks.append(min(row.num_scheduled_tokens, prompt - row.num_computed_tokens))

    kernel.on_scheduled = note
    kernel.run(BOUND)
    return max(chunks)


def _assert_counts(kernel: MiniKernel) -> None:
    running = kernel.table.num_running
    waiting = len(kernel.requests) - running
    told = (kernel.scheduler.num_running, kernel.scheduler.num_waiting)
    assert told == (running, waiting), (
        f"num_running and num_waiting are {told}; {running} requests hold a slot, and {waiting} "
        "others have not ended"
    )


def _assert_empty(kernel: MiniKernel, when: str) -> None:
    assert not kernel.requests, f"{sorted(kernel.requests)} have not ended ({when})"
    in_use = kernel.kv.blocks_in_use()
    assert in_use == 0, f"{in_use} blocks are in use by nobody ({when})"
    _assert_counts(kernel)


def _disturb(kernel: MiniKernel, rng: random.Random) -> None:
    """Sixty random events, then steps until all have ended."""
    for _ in range(60):
        live = list(kernel.requests.values())
        event = rng.choice(("add", "add", "step", "step", "step", "fail", "abort", "preempt"))
        if event == "add":
            length, shared = rng.randint(1, 20), rng.randint(0, 12)
            own = [1000 + 50 * len(kernel.ended) + position for position in range(length)]
            kernel.add([*range(shared), *own][:24], rng.randint(1, 8), tenant=rng.choice("ab"))
        elif event == "abort" and live:
            kernel.abort(rng.choice(live))
        elif event == "preempt":
            kernel.scheduler.preempt_all()
            if rng.random() < 0.5:
                done = kernel.kv.reset_prefix_cache()
                assert done, "the cache can not be reset after preempt_all"
        else:
            failing: Sequence[Request] = live[:2] if event == "fail" else ()
            kernel.step(fail=failing)
        _assert_counts(kernel)
    kernel.run(BOUND)
