"""Keys, and the order that follows from them."""

from __future__ import annotations

from framework.conformance.base import lacking
from framework.conformance.suites.scheduling_policy.base import (
    WORKLOADS,
    SchedulingPolicyPart,
    requests_of,
)
from framework.conformance.worlds.makers import PartMaker, kernel_around
from framework.conformance.worlds.mini_kernel import MiniKernel
from framework.conformance.worlds.workload import play, random_sizes, seeds, workload
from hookspecs.contracts.policy import PolicyCapability, SchedulingPolicy

__all__ = ["Order"]


class Order(SchedulingPolicyPart):
    """Keys compare, stay, and depend on nothing but events."""

    def test_keys_compare(self, policy: SchedulingPolicy, kernel: MiniKernel, seed: int) -> None:
        """Requires nothing.
        Does: asks for the keys of many different requests.
        Must: give tuples of one length whose elements all compare with each other.
        """
        keys = [policy.order_key(request, kernel.view) for request in requests_of(kernel, seed)]
        assert all(isinstance(key, tuple) for key in keys), f"order_key gave {keys[0]!r}, no tuple"
        lengths = sorted({len(key) for key in keys})
        assert len(lengths) == 1, f"keys have the lengths {lengths}; all must have one"
        try:
            sorted(keys)
        except TypeError as error:
            raise AssertionError(f"keys can not be compared: {error}") from error
        unequal = [key for key in keys if key != key]
        assert not unequal, f"the key {unequal[:1]} is not equal to itself, as NaN is not"

    @lacking(PolicyCapability.DYNAMIC_ORDER)
    def test_keys_stay(self, policy: SchedulingPolicy, kernel: MiniKernel, seed: int) -> None:
        """Requires a policy that does not declare dynamic_order.
        Does: asks for keys again later, after others were queued.
        Must: give the same ones, since the kernel asks only once.
        """
        requests = requests_of(kernel, seed)
        before = [policy.order_key(request, kernel.view) for request in requests]
        kernel.now += 100.0
        for request in requests_of(kernel, seed + 1):
            policy.order_key(request, kernel.view)
        after = [policy.order_key(request, kernel.view) for request in requests]
        assert before == after, (
            "a key changed while its request waited; declare the capability dynamic_order, or "
            "keep to what does not change"
        )

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

    def test_same_events_same_schedule(self, make: PartMaker, seed: int) -> None:
        """Requires nothing.
        Does: runs workloads twice, each with a new policy.
        Must: decide the same both times.
        """
        for number in seeds(seed, WORKLOADS // 4):
            load, sizes = workload(number), random_sizes(number)
            first, second = (play(kernel_around(make, **sizes), load) for _ in range(2))
            assert first == second, f"two schedules of one workload (seed {number})"
