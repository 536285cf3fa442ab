"""Pausing and sleeping over HTTP while requests run, wait and arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.server.answers import Answer, answer_of, stream_of
from tests.server.asking import COMPLETIONS, Ask, Form, greedy, open_stream
from tests.server.conftest import SCRIPTED, Start
from tests.server.process import PLAIN, Server, eventually

LENGTH = 300
ENDLESS = 2000
"""Tokens of what is to be aborted before its end."""
PROMPTS = [[5, 6], [7] * 20, [8, 9, 10]]


@pytest.fixture(autouse=True)
def awake(scripted: Server) -> Iterator[None]:
    """The engine runs again after a test, however that ended."""
    yield
    scripted.command("wake_up")
    scripted.command("resume")


class Streams:
    """Streams that have begun."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []

    def check(self, plain: Any, reason: str) -> None:
        """All have ended for this reason, none with a wrong token."""
        assert len(self.answers) == len(PROMPTS)
        for prompt, answer in zip(PROMPTS, self.answers, strict=True):
            choice = answer.only
            assert answer.done
            if reason == "abort":
                assert answer.error is not None
                assert answer.error["code"] == "aborted"
                assert choice.finish_reason is None
            else:
                assert choice.finish_reason == reason
            assert choice.token_ids == plain(prompt, len(choice.token_ids))
            assert len(choice.token_ids) == LENGTH or reason == "abort"


@asynccontextmanager
async def streams(server: Server, length: int) -> AsyncIterator[Streams]:
    """Three of them; the block goes on when each has sent a token, and waits for their ends."""
    found = Streams()
    begun = [asyncio.Event() for _ in PROMPTS]

    async def one(prompt: list[int], event: asyncio.Event) -> Answer:
        lines = []
        async with open_stream(server, greedy(prompt, length)) as events:
            async for line in events:
                event.set()
                lines.append(line)
        return stream_of(lines)

    tasks = [
        asyncio.create_task(one(prompt, event))
        for prompt, event in zip(PROMPTS, begun, strict=True)
    ]
    await asyncio.gather(*(event.wait() for event in begun))
    yield found
    found.answers = await asyncio.gather(*tasks)


async def command(server: Server, name: str, **arguments: Any) -> Any:
    answer = await server.client.post(f"/admin/{name}", json=arguments)
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]


def during_streams(
    server: Server, act: Callable[[], Awaitable[None]], length: int = LENGTH
) -> Streams:
    """Do something while three streams run; what came of these."""

    async def run() -> Streams:
        async with streams(server, length) as found:
            await act()
        return found

    return server.run(run())


def test_a_pause_that_keeps_its_requests_changes_no_output(scripted: Server, plain: Any) -> None:
    """Nothing runs until it is resumed; then all go on where they were."""

    async def act() -> None:
        status = await command(scripted, "pause", mode="keep")
        assert status["state"] == "paused"
        first = (await scripted.current_metrics())["generation_tokens_total"]
        assert (await scripted.client.get("/health")).status_code in (200, 503)
        assert (await scripted.current_metrics())["generation_tokens_total"] == first
        assert (await command(scripted, "resume"))["state"] == "running"

    during_streams(scripted, act).check(plain, "length")


def test_a_pause_that_aborts_ends_its_requests(scripted: Server, plain: Any) -> None:
    """Each stream ends with an error that says so, and what it had is right."""

    async def act() -> None:
        assert (await command(scripted, "pause"))["state"] == "paused"

    during_streams(scripted, act, ENDLESS).check(plain, "abort")
    scripted.command("resume")


def test_a_pause_that_waits_lets_requests_end(scripted: Server, plain: Any) -> None:
    """It answers when nothing runs any more."""

    async def act() -> None:
        assert (await command(scripted, "pause", mode="wait"))["state"] == "paused"
        assert (await scripted.current_metrics())["num_requests_running"] == 0

    during_streams(scripted, act).check(plain, "length")


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize(
    ("mode", "reason"), [("abort", "abort"), ("wait", "length"), ("keep", "length")]
)
def test_sleep_while_streaming(
    scripted: Server, plain: Any, level: int, mode: str, reason: str
) -> None:
    """By option running requests are aborted, waited for or kept; the answer is true; kept ones
    go on after waking, token for token."""

    async def act() -> None:
        status = await command(scripted, "sleep", level=level, mode=mode)
        assert (status["state"], status["sleep_level"]) == ("sleeping", level)
        shown = (await scripted.client.get("/admin/is_sleeping")).json()
        assert shown == {"is_sleeping": True}
        assert (await command(scripted, "wake_up"))["state"] == "running"

    length = ENDLESS if reason == "abort" else LENGTH
    during_streams(scripted, act, length).check(plain, reason)
    assert scripted.get("/health").status_code == 200


def test_requests_while_asleep_are_refused(scripted: Server, streamed: bool, plain: Any) -> None:
    """Status 503 with the time after which to try again; not ready, but alive."""
    ask = Ask(Form(streamed=streamed, among_others=False), plain)
    scripted.command("sleep")
    answer = ask(scripted, greedy([5], 4), failing=True)
    assert answer.status == 503
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.error is not None
    assert answer.error["code"] == "engine_unavailable"
    assert scripted.get("/health").status_code == 503
    assert scripted.get("/health/live").status_code == 200
    embeddings = scripted.post("/v1/embeddings", {"input": [1, 2]})
    assert embeddings.status_code == 503
    scripted.command("wake_up")
    assert ask(scripted, greedy([5], 4)).only.token_ids == plain([5], 4)


def test_requests_that_arrive_during_a_pause_wait(scripted: Server, plain: Any) -> None:
    """And are answered after it."""

    async def run() -> list[Answer]:
        await command(scripted, "pause", mode="keep")
        bodies = [greedy(prompt, 8, return_token_ids=True) for prompt in PROMPTS]
        tasks = [
            asyncio.create_task(scripted.client.post(COMPLETIONS, json=body)) for body in bodies
        ]
        await waiting(scripted, len(bodies))
        assert not any(task.done() for task in tasks)
        await command(scripted, "resume")
        return [answer_of(response) for response in await asyncio.gather(*tasks)]

    answers = scripted.run(run())
    assert [a.only.token_ids for a in answers] == [plain(prompt, 8) for prompt in PROMPTS]


async def waiting(server: Server, count: int) -> None:
    """Until so many requests wait in the engine."""
    end = asyncio.get_running_loop().time() + 30
    while (await server.current_metrics())["num_requests_waiting"] != count:
        assert asyncio.get_running_loop().time() < end


def test_requests_are_cancelled_while_paused(scripted: Server) -> None:
    """Clients that leave take their requests with them, though nothing is scheduled."""

    async def leave() -> None:
        async with httpx.AsyncClient(base_url=scripted.url, timeout=60) as client:
            bodies = [greedy([5] * 1500, 8, stream=i % 2 == 0) for i in range(6)]
            tasks = [asyncio.create_task(client.post(COMPLETIONS, json=b)) for b in bodies]
            await waiting(scripted, len(bodies))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    before = scripted.metrics()["requests_total:abort"]
    scripted.command("pause", mode="keep")
    scripted.run(leave())
    eventually(scripted.idle, "a request is left in a paused engine")
    assert scripted.metrics()["requests_total:abort"] == before + 6
    scripted.command("resume")


@pytest.mark.parametrize("name", ["sleep", "pause"])
def test_requests_that_are_just_arriving_are_answered_at_once(
    scripted: Server, plain: Any, name: str
) -> None:
    """Sent together with the command: each is answered, refused or ended, and none is parked for
    ever."""

    async def run() -> list[Answer]:
        texts = ["a" * (100 + 50 * i) for i in range(24)]
        posted = [
            asyncio.create_task(scripted.client.post(COMPLETIONS, json=greedy(text, 20)))
            for text in texts
        ]
        order = await command(scripted, name)
        assert order["state"] in ("sleeping", "paused")
        await command(scripted, "wake_up" if name == "sleep" else "resume")
        return [answer_of(response) for response in await asyncio.gather(*posted)]

    for answer in scripted.run(run()):
        if answer.status == 200:
            assert answer.only.finish_reason == "length"
        else:
            assert answer.status in (500, 503)
            assert answer.error is not None
            assert answer.error["message"]


def test_sleeping_and_waking_twice_is_as_once(scripted: Server, plain: Any) -> None:
    """Also to a deeper level, and back tag by tag; unknown tags and levels change nothing."""
    expected = plain([5], 6)

    def said() -> list[int]:
        body = greedy([5], 6, return_token_ids=True)
        return answer_of(scripted.post(COMPLETIONS, body)).only.token_ids

    assert said() == expected
    for level in (1, 2):
        for _ in range(2):
            assert scripted.command("sleep", level=level)["state"] == "sleeping"
        for bad in (["nonsense"], ["weights", "nonsense"], "weights", [1]):
            refused = answer_of(scripted.post("/admin/wake_up", {"tags": bad}))
            assert "tags" in refused.refusal() or "nonsense" in refused.refusal()
        assert scripted.get("/admin/is_sleeping").json() == {"is_sleeping": True}
        for tags in (["weights"], ["weights"], ["kv_cache"]):
            status = scripted.command("wake_up", tags=tags)
        assert status["state"] in ("waking", "paused", "running")
        for _ in range(2):
            assert scripted.command("wake_up")["state"] == "running"
        assert said() == expected
    for wrong in (-1, 3, 1.5, "1", None):
        assert answer_of(scripted.post("/admin/sleep", {"level": wrong})).status == 400
    assert said() == expected


def test_resume_without_pause_changes_nothing(scripted: Server) -> None:
    """Twice, and pause twice."""
    for name, state in (("resume", "running"), ("pause", "paused")):
        for _ in range(2):
            assert scripted.command(name)["state"] == state


def test_a_drained_server_takes_nothing_more(start: Start, plain: Any) -> None:
    """The request that runs ends as it should; new ones get 503, and so does readiness."""
    server = start("scripted", *SCRIPTED)

    async def run() -> Answer:
        async with open_stream(server, greedy([5], LENGTH)) as events:
            lines = [await anext(events)]
            drain = asyncio.create_task(server.client.post("/admin/drain", json={}))
            lines += [line async for line in events]
            assert (await drain).status_code == 200
        return stream_of(lines)

    assert server.run(run()).only.token_ids == plain([5], LENGTH)
    for _ in range(2):
        refused = server.post(COMPLETIONS, PLAIN)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
    assert server.get("/health").status_code == 503
    assert server.get("/health/live").status_code == 200
    assert server.stop() == 0
