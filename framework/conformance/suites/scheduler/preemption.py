"""Who is preempted, and for whom."""

from __future__ import annotations

from collections import Counter

from framework.conformance.base import lacking, requires
from framework.conformance.suites.scheduler.base import BOUND, SchedulerPart
from framework.conformance.worlds.makers import PartMaker, kernel_around
from framework.conformance.worlds.told_policy import ToldPolicy
from hookspecs.contracts.scheduler import SchedulerCapability
from hookspecs.types.request import FinishReason

__all__ = ["Preemption"]


class Preemption(SchedulerPart):
    """Policies say who goes."""

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
