"""First pass of a step: running requests get tokens and the blocks that these need."""

from __future__ import annotations

from builtin_plugins.scheduler_continuous.plan import StepPlan
from builtin_plugins.scheduler_continuous.queues import Queues
from builtin_plugins.scheduler_continuous.running import RunningRequest
from hookspecs.types.request import FinishReason

__all__ = ["plan_running"]


def plan_running(
    queues: Queues, budget: int, most_per_row: int, most_beside: int | None
) -> StepPlan:
    """Plan a step for the running requests, first in order first; limits as `StepPlan.share`.

    Where blocks are short, running requests are preempted until what is left fits. The first
    in the order is never preempted for another, so it always progresses.
    """
    plan = _new_plan(queues)
    if not plan.share(budget, most_per_row, most_beside) and queues.policies.dynamic_order:
        # Who gets tokens depends on the order, and the one we have may be out of date.
        queues.running.rekey(queues.policies.key)
        plan = _new_plan(queues)
        plan.share(budget, most_per_row, most_beside)
    for row, end in plan.outgrown(queues.kv.capacity):
        # It may have been preempted for a row before it.
        if not plan.preempted or plan.scheduled[row]:
            _grow(queues, plan, row, end)
    return plan


def _new_plan(queues: Queues) -> StepPlan:
    return StepPlan(*queues.running.columns, queues.table)


def _grow(queues: Queues, plan: StepPlan, row: int, end: int) -> None:
    """Get the blocks that a row's first `end` tokens need, or take the row back."""
    entry = plan.rows[row]
    while (blocks := queues.kv.allocate(entry.request, end)) is None:
        victim = _select_victim(queues, plan)
        if victim is None:
            plan.take_back(row)
            queues.end(
                entry.request,
                FinishReason.ERROR,
                f"request {entry.request.request_id!r} needs blocks for {end} tokens, which the "
                f"KV cache of {queues.kv.num_total_blocks} blocks does not have with nothing "
                "else running; raise cache.num_blocks or lower model.max_model_len",
            )
            return
        plan.take_back(plan.row_of(victim))
        plan.preempted.add(victim.request.request_id)
        queues.preempt(victim)
        if victim is entry:
            return
    plan.append_blocks(row, blocks)


def _select_victim(queues: Queues, plan: StepPlan) -> RunningRequest | None:
    """Who is preempted; None if only one request runs."""
    if queues.policies.dynamic_order and not plan.preempted:
        queues.running.rekey(queues.policies.key)
    candidates = [entry.request for entry in queues.running.order]
    candidates = [request for request in candidates if not queues.is_ending(request)]
    if len(candidates) < 2:
        return None
    return queues.running[queues.policies.select_victim(candidates[1:]).request_id]
