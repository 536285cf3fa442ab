"""Policies in the kernel, in an engine, and in large crowds."""

from __future__ import annotations

from typing import Any

from framework.conformance.subject import Subject
from framework.conformance.suites.scheduling_policy.base import WORKLOADS, SchedulingPolicyPart, new
from framework.conformance.worlds.cost import lines_of
from framework.conformance.worlds.engines import run_prompts
from framework.conformance.worlds.growth import bytes_kept
from framework.conformance.worlds.makers import PartMaker, kernel_around
from framework.conformance.worlds.workload import play, random_sizes, seeds, workload

__all__ = ["Surroundings"]

BOUND = 4000
"""Steps in which a workload that needs a few hundred must be done."""
TENANTS = ((1000, 0.0), (1000, 0.0), (2000, 0.0), (4000, 0.0), (8000, 0.0))
"""Tenants of each round, each with one request, and no time for threads."""
BYTES = 40
"""Kept of each tenant; less than an entry of a dictionary with a name takes."""


class Surroundings(SchedulingPolicyPart):
    """Whatever a policy says, every request ends and nobody starves."""

    # In the kernel

    def test_everything_ends(self, make: PartMaker, seed: int) -> None:
        """Requires nothing.
        Does: random workloads with aborts, deadlines and a cache that is too small.
        Must: let every request end once, break no invariant of the kernel, leak no block, and
        starve nobody for longer than a bounded number of steps.
        """
        for number in seeds(seed, WORKLOADS):
            kernel = kernel_around(make, **random_sizes(number))
            load = workload(number)
            play(kernel, load, limit=BOUND)
            assert len(kernel.ended) == len(load.arrivals), "a request ended without a trace"
            in_use = kernel.kv.blocks_in_use()
            assert in_use == 0, f"{in_use} blocks are in use by nobody (workload seed {number})"

    def test_nobody_starves(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: keeps the engine busy with new requests of another tenant and length, then with those
        of tenants that are new each time, while one tenant has two requests.
        Must: let both start within a bounded number of steps.
        """
        for others, of_whom in (("busy", "one other tenant"), ("new-{}", "ever new tenants")):
            kernel = kernel_around(make, max_num_seqs=1, num_blocks=16)
            patient = [kernel.add(20, 2, tenant="patient") for _ in range(2)]
            for number in range(BOUND):
                if kernel.scheduler.num_waiting < 4:
                    kernel.add(1, 1, tenant=others.format(number))
                kernel.step()
                if all(each.finished or each.num_output_tokens for each in patient):
                    break
            late = [each for each in patient if not each.finished and not each.num_output_tokens]
            assert not late, (
                f"{len(late)} of two requests with prompts of 20 tokens had not started after "
                f"{BOUND} steps, while later ones of {of_whom} did"
            )

    def test_it_survives_preemption_of_all(self, make: PartMaker, seed: int) -> None:
        """Requires nothing.
        Does: takes slots and blocks from all running requests in the middle of a workload, as a
        pause or a cache reset does.
        Must: let them come back and end.
        """
        kernel = kernel_around(make, num_blocks=24)
        for number in range(10):
            kernel.add(5 + number, 6, tenant=f"t{number % 3}", priority=number % 2)
        for _ in range(6):
            kernel.step()
            kernel.scheduler.preempt_all()
        kernel.run(BOUND)

    def test_it_stacks(self, subject: Subject, seed: int) -> None:
        """Requires nothing.
        Does: runs workloads with the policy before and after `priority`.
        Must: work in both places; what it decides adds to the others.
        """
        name = subject.provider
        for policies in (["priority", name], [name, "priority"]):
            stacked = PartMaker(
                Subject(
                    subject.plugin,
                    "scheduling_policy",
                    name,
                    {**subject.given, "scheduler": {"policies": policies}},
                )
            )
            for number in seeds(seed, WORKLOADS // 8):
                play(kernel_around(stacked, **random_sizes(number)), workload(number), limit=BOUND)

    # In an engine

    def test_tokens_do_not_depend_on_it(self, subject: Subject, seed: int) -> None:
        """Requires nothing.
        Does: generates in a real engine with a small cache, with the policy and with none that
        reorders.
        Must: change when requests run, never what they get.
        """
        small: dict[str, Any] = {"cache": {"num_blocks": 12}}
        with subject.launch(**small) as engine:
            with_policy = run_prompts(engine, seed)
        with subject.launch(**small, scheduler={"policies": ["fcfs"]}) as engine:
            without = run_prompts(engine, seed)
        assert with_policy == without, "the policy changed the tokens of a request"

    # Cost

    def test_a_key_costs_the_same_in_any_crowd(
        self, make: PartMaker, subject: Subject, seed: int
    ) -> None:
        """Requires nothing.
        Does: counts the lines that queueing a request executes, behind 20 and behind 2,000.
        Must: not grow with the number of those that wait (a sort inside of a step may).
        """
        costs = []
        for crowd in (20, 2000):
            policy, kernel = new(make, subject), kernel_around(make, policies=())
            for _ in range(crowd):
                policy.order_key(kernel.add(1, 1, tenant="crowd"), kernel.view)
            last = kernel.add(1, 1, tenant="crowd")
            costs.append(lines_of(lambda p=policy, r=last, v=kernel.view: p.order_key(r, v)))  # type: ignore[misc]
        small, large = costs
        assert large <= 4 * small + 40, (
            f"order_key of a new request executes {small} lines behind 20 requests, {large} "
            "behind 2,000"
        )

    def test_tenants_are_forgotten(self, make: PartMaker, subject: Subject) -> None:
        """Requires nothing.
        Does: measures the memory that thousands of tenants leave behind, each with one request
        that has ended.
        Must: keep nothing of each, since callers may make up names; a bounded number may be kept,
        and what is kept of the rest dropped later.
        """
        kernel = kernel_around(make, policies=[new(make, subject)])
        ledger = kernel.table.tenant_ledger

        def serve(first: int, count: int) -> None:
            for number in range(first, first + count):
                kernel.add(1, 1, tenant=f"tenant-{number}")
                if kernel.scheduler.num_waiting >= 8:
                    kernel.run()
            kernel.run()
            kernel.forget()
            # The kernel remembers thousands of tenants: the same ones after each round.
            for number in range(5000):
                ledger.enter(f"other-{number}")
                ledger.leave(f"other-{number}")

        kept = bytes_kept(serve, BYTES, TENANTS)
        assert kept < BYTES, f"it keeps {kept:.0f} bytes of each tenant whose requests have ended"
