"""Whether requests would be taken, asked before they are made."""

from __future__ import annotations

import asyncio

import pytest

from framework import SamplingParams
from hookspecs.errors import (
    EngineDeadError,
    EngineUnavailableError,
    InvalidRequestError,
    QueueFullError,
)
from tests.async_llm.engines import launch


def test_check_admission() -> None:
    async def body() -> None:
        async with launch(
            scheduler={"max_num_seqs": 2}, serving={"max_waiting_requests": 2}
        ) as engine:
            engine.check_admission()
            engine.check_admission(4)
            engine.check_admission(4)  # nothing is reserved
            with pytest.raises(InvalidRequestError, match="more than the limit of 4"):
                engine.check_admission(5)  # which would never fit
            params = SamplingParams(
                n=2, max_tokens=4000, ignore_eos=True, detokenize=False, temperature=1.0
            )
            outputs = engine.generate([1, 2], params, request_id="r")
            await anext(outputs)
            with pytest.raises(QueueFullError, match="limit of 4") as caught:
                engine.check_admission(3)
            assert caught.value.retry_after_s > 0
            await outputs.aclose()
            await engine.command("sleep", {})
            with pytest.raises(EngineUnavailableError, match="wake_up"):
                engine.check_admission()
            await engine.command("wake_up", {})
            engine.check_admission()
            await engine.drain(0)
            with pytest.raises(EngineUnavailableError, match="stop"):
                engine.check_admission()
        with pytest.raises(EngineDeadError):
            engine.check_admission()

    asyncio.run(body())
