"""Errors that the official client of OpenAI raises for keys and a full queue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.server.conftest import SCRIPTED, Start
from tests.server.process import PLAIN, Server, eventually

BODY: dict[str, Any] = {
    k: v for k, v in PLAIN.items() if k in ("prompt", "max_tokens", "temperature")
}


@pytest.fixture
def keyed(start: Start) -> Iterator[Server]:
    """A server with a key."""
    yield start("scripted", *SCRIPTED, "--serving.api_keys", '["right", "other"]', key="right")


@pytest.fixture
def full(start: Start) -> Iterator[Server]:
    """A server that runs two requests and lets none wait."""
    bounds = ("--scheduler.max_num_seqs", "2", "--serving.max_waiting_requests", "0")
    yield start("scripted", *SCRIPTED, *bounds)


def test_keys(keyed: Server) -> None:
    """A wrong or missing key is an AuthenticationError; every right one is let in."""
    fields: dict[str, Any] = {"model": "scripted", **BODY}
    for key in ("wrong", "righ", "rightright"):
        with openai.OpenAI(base_url=f"{keyed.url}/v1", api_key=key, max_retries=0) as client:
            with pytest.raises(openai.AuthenticationError) as caught:
                client.completions.create(**fields)
            assert caught.value.code == "invalid_api_key"
    for key in ("right", "other"):
        with openai.OpenAI(base_url=f"{keyed.url}/v1", api_key=key, max_retries=0) as client:
            assert client.completions.create(**fields).choices
    keyed.check_alive()


def test_a_full_queue(full: Server) -> None:
    """More than can run are refused by a RateLimitError that says when to come again; those that
    run are not disturbed."""

    async def run() -> None:
        async with openai.AsyncOpenAI(
            base_url=f"{full.url}/v1", api_key="none", max_retries=0
        ) as client:
            extra = {"ignore_eos": True, "return_token_ids": True}
            streams = [
                await client.completions.create(
                    model="scripted",
                    prompt=[5],
                    max_tokens=2000,
                    stream=True,
                    temperature=0,
                    extra_body=extra,
                )
                for _ in range(2)
            ]
            with pytest.raises(openai.RateLimitError) as caught:
                await client.completions.create(model="scripted", **BODY)
            assert int(caught.value.response.headers["retry-after"]) >= 1
            assert caught.value.code == "queue_full"
            for stream in streams:
                await stream.close()

    full.run(run())
    eventually(full.idle, "the streams that were closed go on")
    full.check_alive()
    assert full.metrics()["admission_rejections_total:queue_full"] == 1


def test_a_model_that_fails(scripted: Server) -> None:
    """An InternalServerError where nothing was sent yet, an APIError within a stream."""
    fields: dict[str, Any] = {"model": scripted.model, **BODY, "max_tokens": 9}
    extra = {"extensions": {"scripted": {"tokens": [5] * 9, "fail_at": 3}}}
    with openai.OpenAI(base_url=f"{scripted.url}/v1", api_key="none", max_retries=0) as client:
        with pytest.raises(openai.InternalServerError) as caught:
            client.completions.create(**fields, extra_body=extra)
        assert isinstance(caught.value, openai.APIStatusError)
        with pytest.raises(openai.APIError, match="fails"):
            for _ in client.completions.create(**fields, stream=True, extra_body=extra):
                pass
        with pytest.raises(openai.BadRequestError):
            client.completions.create(**{**fields, "max_tokens": -1})


def test_a_deadline_is_an_error(tight: Server) -> None:
    """Of a request that starts too late, here because the engine is paused."""
    tight.command("pause", mode="keep")

    async def run() -> None:
        async with openai.AsyncOpenAI(
            base_url=f"{tight.url}/v1", api_key="none", max_retries=0
        ) as client:
            call = asyncio.create_task(
                client.completions.create(model=tight.model, **BODY, extra_body={"deadline_ms": 1})
            )
            while (await tight.current_metrics())["num_requests_waiting"] != 1:
                pass
            await tight.client.post("/admin/resume", json={})
            with pytest.raises(openai.APIStatusError) as caught:
                await call
            assert caught.value.status_code == 504

    try:
        tight.run(run())
    finally:
        tight.command("resume")
