"""Random use of scheduler, policies and cache manager: what must hold whatever happens.

The mini kernel checks on every step that rows are legal, that the cache's accounts add up and
that each token reads what it should; `on_finish` exactly once is checked as requests end.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from builtin_plugins.policies.deadline import DeadlinePolicy
from builtin_plugins.policies.fair_share import FairSharePolicy
from builtin_plugins.policies.fcfs import FcfsPolicy
from builtin_plugins.policies.options import FairShareOptions, PriorityOptions
from builtin_plugins.policies.priority import PriorityPolicy
from framework.core.request import Request
from hookspecs.contracts.policy import (
    Admission,
    PolicyContext,
    SchedulerView,
    SchedulingPolicy,
)
from hookspecs.contracts.request_view import RequestView
from hookspecs.types.request import FinishReason, RequestStatus
from tests.mini_kernel import FULL, MiniKernel, make_policy, sliding


class Contrary(SchedulingPolicy):
    """Chooses the first candidate as victim, always pushes out, admits every other time, and
    caps tokens now and then."""

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._asked = 0

    def admit(self, request: RequestView, view: SchedulerView) -> Admission:
        self._asked += 1
        return Admission.ADMIT if self._asked % 2 else Admission.WAIT

    def cap_tokens(self, view: SchedulerView) -> int | None:
        return 0 if int(view.now) % 3 == 0 else None

    def select_victim(
        self, candidates: Sequence[RequestView], view: SchedulerView
    ) -> RequestView | None:
        return candidates[0]

    def preempts(self, waiting: RequestView, running: RequestView) -> bool | None:
        return True


def _policies(names: tuple[str, ...]) -> list[SchedulingPolicy]:
    made = {
        "fcfs": lambda: make_policy(FcfsPolicy),
        "priority": lambda: make_policy(PriorityPolicy),
        "urgent": lambda: make_policy(PriorityPolicy, PriorityOptions(preempt_running=True)),
        "fair": lambda: make_policy(FairSharePolicy, FairShareOptions(weights={"a": 2.0})),
        "deadline": lambda: make_policy(DeadlinePolicy),
        "contrary": lambda: make_policy(Contrary),
    }
    return [made[name]() for name in names]


STACKS = (
    ("fcfs",),
    ("priority",),
    ("urgent",),
    ("fair",),
    ("deadline", "urgent"),
    ("urgent", "fair"),
    ("contrary",),
    ("fair", "contrary"),
)
GROUPS = ((FULL,), (sliding(5),), (FULL, sliding(3)), (sliding(6), FULL, sliding(1)))


class SchedulerMachine(RuleBasedStateMachine):
    """A tiny engine under random requests and control operations."""

    requests: Bundle[Request] = Bundle("requests")

    @initialize(
        stack=st.sampled_from(STACKS),
        groups=st.sampled_from(GROUPS),
        block_size=st.integers(1, 4),
        num_blocks=st.integers(8, 40),
        max_num_seqs=st.integers(1, 5),
        budget=st.integers(1, 12),
        threshold=st.integers(0, 6),
        caching=st.booleans(),
    )
    def start(
        self,
        stack: tuple[str, ...],
        groups: tuple[object, ...],
        block_size: int,
        num_blocks: int,
        max_num_seqs: int,
        budget: int,
        threshold: int,
        caching: bool,
    ) -> None:
        self.kernel = MiniKernel(
            num_blocks=num_blocks,
            block_size=block_size,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=budget,
            long_prefill_token_threshold=threshold,
            policies=_policies(stack),
            groups=groups,  # type: ignore[arg-type]
            enable_prefix_caching=caching,
        )
        self.may_expire = "deadline" in stack

    @rule(
        target=requests,
        length=st.integers(1, 24),
        shared=st.integers(0, 24),
        max_tokens=st.integers(1, 12),
        priority=st.integers(0, 2),
        tenant=st.sampled_from("abc"),
        wait=st.none() | st.floats(0, 20),
        logprobs=st.booleans(),
    )
    def add(
        self,
        length: int,
        shared: int,
        max_tokens: int,
        priority: int,
        tenant: str,
        wait: float | None,
        logprobs: bool,
    ) -> Request | MultipleResults[Request]:
        kernel = self.kernel
        while length and not kernel.kv.can_ever_fit(length + max_tokens):
            length -= 1
        if not length:
            return multiple()
        own = 1000 * (len(kernel.requests) + len(kernel.ended) + 1)
        prompt = [*range(min(shared, length)), *range(own, own + length - min(shared, length))]
        return kernel.add(
            prompt,
            max_tokens,
            prompt_logprobs=0 if logprobs else None,
            priority=priority,
            tenant=tenant,
            deadline=None if wait is None else kernel.now + wait,
        )

    @rule(steps=st.integers(1, 6))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.kernel.step()

    @rule(request=requests)
    def abort(self, request: Request) -> None:
        if not request.finished:
            self.kernel.abort(request)

    @rule(request=requests)
    def fail(self, request: Request) -> None:
        if not request.finished:
            self.kernel.step(fail=[request])

    @rule()
    def preempt_all(self) -> None:
        self.kernel.scheduler.preempt_all()
        assert self.kernel.scheduler.num_running == 0
        assert self.kernel.kv.blocks_in_use() == 0

    @rule()
    def reset(self) -> None:
        in_use = self.kernel.kv.blocks_in_use()
        assert self.kernel.kv.reset_prefix_cache() is (in_use == 0)

    @invariant()
    @precondition(lambda self: hasattr(self, "kernel"))
    def counts_agree(self) -> None:
        kernel = self.kernel
        states = [request.status for request in kernel.requests.values()]
        assert kernel.scheduler.num_running == states.count(RequestStatus.RUNNING)
        assert kernel.scheduler.num_running + kernel.scheduler.num_waiting == len(states)
        kernel.kv.check()

    def teardown(self) -> None:
        """Whatever was left ends within a bounded number of steps, and returns its blocks."""
        if not hasattr(self, "kernel"):
            return
        kernel = self.kernel
        left = list(kernel.requests.values())
        # Each request alone takes at most one step a token, and loses what it computed only
        # when another goes on; some steps have one token, or admit nobody.
        kernel.run(limit=100 + 12 * sum(r.max_total_tokens for r in left) * (1 + len(left)))
        assert kernel.kv.blocks_in_use() == 0
        assert kernel.table.num_running == 0
        assert kernel.scheduler.num_waiting == kernel.scheduler.num_running == 0
        for request in left:
            reason = kernel.ended[request.request_id]
            if reason is FinishReason.TIMEOUT:
                assert self.may_expire
                assert request.deadline is not None
            else:
                assert reason is FinishReason.LENGTH, "a request that fits was refused"


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
