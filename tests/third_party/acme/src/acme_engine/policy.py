"""The scheduling policy: last come, first served."""

from hookspecs.contracts.policy import OrderKey, SchedulerView, SchedulingPolicy
from hookspecs.contracts.request_view import RequestView


class LastComePolicy(SchedulingPolicy):
    """Starts the request that arrived last."""

    def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
        """Smaller comes first."""
        return (-request.arrival,)
