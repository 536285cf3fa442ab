"""Random workloads in a mini kernel."""

from __future__ import annotations

import random
from collections.abc import Sequence

from framework.conformance.suites.scheduler.base import (
    BOUND,
    SchedulerPart,
    assert_counts,
    assert_empty,
)
from framework.conformance.worlds.makers import PartMaker, kernel_around
from framework.conformance.worlds.mini_kernel import FULL, MiniKernel, sliding
from framework.conformance.worlds.workload import play, random_sizes, seeds, workload
from framework.core.request import Request
from hookspecs.types.kv import KVCacheGroup
from hookspecs.types.request import FinishReason, RequestStatus

__all__ = ["Workloads"]

WORKLOADS = 24
"""Random workloads of a test."""
BESIDE = (None, 1, 4, 64)
"""Prompt tokens that fit beside decodes: fewer than a prompt or a chunk, or more than a budget."""
GROUPS: tuple[tuple[KVCacheGroup, ...], ...] = ((FULL,), (sliding(5),), (FULL, sliding(3)))


class Workloads(SchedulerPart):
    """Every request ends, in the same order for the same events."""

    def test_everything_ends(self, make: PartMaker, seed: int) -> None:
        """Requires nothing.
        Does: random workloads with aborts and deadlines, few blocks, slots and tokens, with and
        without prefix caching, with full attention, sliding windows and both, with and without a
        number of prompt tokens that fit beside decodes.
        Must: let every request end once and none with an error, keep the budget and the other
        invariants of the kernel at every step, and leak no block.
        """
        for number in seeds(seed, WORKLOADS):
            groups = GROUPS[number % len(GROUPS)]
            sizes = random_sizes(number)
            sizes["num_blocks"] += 16 * (len(groups) - 1)
            kernel = kernel_around(
                make,
                **sizes,
                groups=groups,
                enable_prefix_caching=bool(number % 2),
                prefill_beside_decode=BESIDE[number // 6 % len(BESIDE)],
            )
            load = workload(number)
            play(kernel, load, limit=BOUND)
            assert len(kernel.ended) == len(load.arrivals), "a request ended without a trace"
            failed = [name for name, why in kernel.ended.items() if why is FinishReason.ERROR]
            assert not failed, f"{failed} ended with an error (workload seed {number})"
            assert_empty(kernel, f"workload seed {number}")

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
            assert_empty(kernel, f"disturbed workload of seed {number}")

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

    def test_prompts_beside_decodes_come_to_their_end(self, make: PartMaker) -> None:
        """Requires nothing: a scheduler may ignore what it is told.
        Does: tells it that 1, 5 or 100 prompt tokens fit beside decodes, and keeps the engine busy
        with small requests that come later than a long prompt and a long output.
        Must: bring both to their end within a bounded number of steps, and then all the others.
        """
        for most in (1, 5, 100):
            kernel = kernel_around(
                make, num_blocks=40, max_num_seqs=4, policies=(), prefill_beside_decode=most
            )
            asked = {"output": kernel.add(2, 30)}
            kernel.step()
            asked["prompt"] = kernel.add(40, 2)
            for _ in range(BOUND // 5):
                if all(request.finished for request in asked.values()):
                    break
                while kernel.scheduler.num_waiting < 12:
                    kernel.add(2, 6)
                kernel.step()
            late = [name for name, request in asked.items() if not request.finished]
            assert not late, (
                f"the long {' and the long '.join(late)} had not come to an end after "
                f"{BOUND // 5} steps with prefill_beside_decode = {most}, while small requests "
                "that came later went on"
            )
            kernel.run(BOUND)
            assert_empty(kernel, f"prefill_beside_decode = {most}")

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
        assert_counts(kernel)
    kernel.run(BOUND)
