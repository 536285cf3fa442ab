"""Lists the requests of an engine. Core process, main thread, between two steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from builtin_plugins.engine_requests.report import (
    RequestLine,
    RequestsArguments,
    RequestsReport,
    Totals,
)
from hookspecs.contracts.engine_command import EngineCommand
from hookspecs.contracts.policy import SchedulerView
from hookspecs.contracts.request_view import RequestView
from hookspecs.types.request import RequestStatus

__all__ = ["Requests"]

_STATUS: Final = {
    RequestStatus.WAITING: "waiting",
    RequestStatus.RUNNING: "running",
    RequestStatus.PREEMPTED: "preempted",
}


class Requests(EngineCommand):
    """Changes nothing, and may be called in every state of the engine."""

    Arguments = RequestsArguments

    def run(self, arguments: RequestsArguments) -> RequestsReport:
        engine, tenant = self.context.engine, arguments.tenant
        matching = [
            request for request in engine.requests() if tenant is None or request.tenant == tenant
        ]
        listed = matching[: arguments.limit]
        view = engine.scheduler
        return RequestsReport(
            engine_index=self.context.engine_index,
            requests=[_line(request, view) for request in listed],
            left_out=len(matching) - len(listed),
            totals=_totals(matching),
            blocks_free=engine.cache.num_free_blocks,
            blocks_total=engine.cache.num_total_blocks,
        )


def _line(request: RequestView, view: SchedulerView) -> RequestLine:
    return RequestLine(
        request_id=request.request_id,
        tenant=request.tenant,
        status=_STATUS[request.status],
        priority=request.priority,
        prompt_tokens=request.num_prompt_tokens,
        output_tokens=request.num_output_tokens,
        blocks_needed=view.blocks_needed(request),
        preemptions=request.num_preemptions,
        age_s=max(0.0, view.now - request.arrival_time),
    )


def _totals(requests: Sequence[RequestView]) -> Totals:
    statuses = [request.status for request in requests]
    return Totals(
        running=statuses.count(RequestStatus.RUNNING),
        waiting=statuses.count(RequestStatus.WAITING),
        preempted=statuses.count(RequestStatus.PREEMPTED),
        prompt_tokens=sum(request.num_prompt_tokens for request in requests),
        output_tokens=sum(request.num_output_tokens for request in requests),
    )
