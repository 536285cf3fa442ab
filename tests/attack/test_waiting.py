"""Many waiting requests: what one more costs does not grow with them."""

from __future__ import annotations

from typing import Any

import pytest

from framework import SamplingParams
from framework.core.request import Request


@pytest.mark.parametrize("policy", ["fcfs", "priority", "deadline", "fair_share"])
def test_adding_looks_at_a_bounded_number_of_requests(
    launch: Any, answer: Any, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = launch(scheduler={"policies": [policy]})
    looks = 0
    tenant = vars(Request)["tenant"].fget

    def counted(request: Request) -> str:
        nonlocal looks
        looks += 1
        return str(tenant(request))

    monkeypatch.setattr(Request, "tenant", property(counted))
    costs: list[int] = []
    params = SamplingParams(max_tokens=4)
    for number in range(400):
        before = looks
        engine.engine.add_request(f"r{number}", [1, 2], params, tenant=f"t{number % 5}")
        costs.append(looks - before)
    assert max(costs[300:]) <= max(costs[:100])
    engine.engine.abort_request([f"r{number}" for number in range(400)])
    answer(engine)
