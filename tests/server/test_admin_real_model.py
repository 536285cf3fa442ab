"""Control over HTTP of the real model: whatever is done to it, it then says what it said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.server.answers import Answer, answer_of, stream_of
from tests.server.asking import COMPLETIONS, open_stream
from tests.server.process import Server

pytestmark = pytest.mark.slow

BODY = {
    "prompt": "Once upon a time, in a village by the sea,",
    "max_tokens": 10,
    "temperature": 0,
    "ignore_eos": True,
    "return_token_ids": True,
}


@pytest.fixture(autouse=True)
def awake(request: pytest.FixtureRequest) -> Iterator[None]:
    """The engine runs again after a test, however that ended."""
    real: Server | None = None
    if "real" in request.fixturenames:
        real = request.getfixturevalue("real")
    yield
    if real is not None:
        real.command("wake_up")
        real.command("resume")


def said(server: Server, **fields: Any) -> tuple[str, list[int]]:
    choice = answer_of(server.post(COMPLETIONS, {**BODY, **fields})).only
    return choice.text, choice.token_ids


def test_a_pause_while_streaming_changes_no_text(real: Server) -> None:
    """Requests are kept, nothing is made until it is resumed, and the text is the undisturbed
    one, whether or not the cache was cleared."""
    expected = said(real)

    async def run(clear_cache: bool) -> Answer:
        async with open_stream(real, BODY) as events:
            lines = [await anext(events)]
            body = {"mode": "keep", "clear_cache": clear_cache}
            paused = await real.client.post("/admin/pause", json=body)
            assert paused.json()["result"]["state"] == "paused"
            made = (await real.current_metrics())["generation_tokens_total"]
            status = (await real.client.get("/admin/status")).json()["result"]
            assert status["state"] == "paused"
            assert (await real.current_metrics())["generation_tokens_total"] == made
            assert (await real.client.post("/admin/resume", json={})).status_code == 200
            lines += [line async for line in events]
        return stream_of(lines)

    for clear_cache in (False, True):
        choice = real.run(run(clear_cache)).only
        assert (choice.text, choice.token_ids) == expected


@pytest.mark.parametrize("level", [1, 2])
def test_after_sleep_it_says_what_it_said(real: Server, level: int) -> None:
    """Asleep it refuses requests with 503 and a time to come again; a wrong tag is refused;
    sleeping and waking twice is as once."""
    expected = said(real)
    for _ in range(2):
        assert real.command("sleep", level=level)["state"] == "sleeping"
    for body in (BODY, {**BODY, "stream": True}):
        refused = real.post(COMPLETIONS, body)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
    assert "nonsense" in answer_of(real.post("/admin/wake_up", {"tags": ["nonsense"]})).refusal()
    for _ in range(2):
        assert real.command("wake_up")["state"] == "running"
    assert said(real) == expected


def test_requests_go_on_after_sleep(real: Server) -> None:
    """One that is kept is computed again and says the same."""
    expected = said(real)

    async def run() -> Answer:
        async with open_stream(real, BODY) as events:
            lines = [await anext(events)]
            for name, body in (("sleep", {"level": 2, "mode": "keep"}), ("wake_up", {})):
                assert (await real.client.post(f"/admin/{name}", json=body)).status_code == 200
            lines += [line async for line in events]
        return stream_of(lines)

    choice = real.run(run()).only
    assert (choice.text, choice.token_ids) == expected


def test_weights_are_replaced_in_place(real: Server, model_path: str, tmp_path: Path) -> None:
    """Others say something else, the old ones what they said; what is no file of weights is
    refused and changes nothing."""
    expected = said(real)
    (file,) = Path(model_path).glob("*.safetensors")
    weights = load_file(file)
    generator = torch.Generator().manual_seed(0)
    changed = {
        name: tensor * (1 + 0.1 * torch.randn(tensor.shape, generator=generator)).to(tensor.dtype)
        if tensor.ndim == 2
        else tensor
        for name, tensor in weights.items()
    }
    save_file(changed, tmp_path / "model.safetensors", metadata={"format": "pt"})
    status = real.command("update_weights", path=str(tmp_path), version="noisy")
    assert status["weights_version"] == "noisy"
    other = said(real)
    assert other != expected
    for path in (str(tmp_path / "missing"), "", str(tmp_path / "missing.safetensors")):
        refused = real.post("/admin/update_weights", {"path": path})
        assert refused.status_code == 400, refused.text
    assert said(real) == other
    real.command("update_weights", path=str(file))
    assert said(real) == expected


def test_the_prefix_cache_is_forgotten(real: Server) -> None:
    """After that a prompt is computed anew, and says the same."""

    def cached() -> int:
        answer = answer_of(real.post(COMPLETIONS, {**BODY, "prompt": list(range(100, 164))}))
        assert answer.usage is not None
        count: int = answer.usage["prompt_tokens_details"]["cached_tokens"]
        return count

    cached()
    assert cached() == 48
    assert real.command("reset_prefix_cache") is True
    assert cached() == 0
