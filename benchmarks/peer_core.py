"""The peer's half of tables of the engine core: vLLM's, in a process that does only this."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.engine_process import EngineProcess, peer_process
from benchmarks.model import small_model
from benchmarks.peers import find_peer

__all__ = ["CoreSteps", "ask_steps", "peer_core", "peer_core_steps"]


class CoreSteps(msgspec.Struct, frozen=True):
    """Decode steps, one after the other."""

    seconds: list[float]
    stub: list[float]
    """Of them what stood in the model's place took; zeros with a model."""


def peer_core(directory: str | None, tiny_model: Path | None = None) -> EngineProcess | None:
    """Not yet started: `with` it. None without the peer. `tiny_model`: a model directory to run;
    None: a stub that gives a token to each request."""
    peer = find_peer("vllm", directory)
    if peer is None:
        return None
    if tiny_model is not None:
        return peer_process(peer, "vllm_core.py", str(tiny_model), "real")
    return peer_process(peer, "vllm_core.py", str(small_model().directory))


def ask_steps(
    core: EngineProcess,
    running: int,
    *,
    steps: int,
    warm_up: int = 64,
    prompt_tokens: int = 128,
) -> CoreSteps:
    """With new requests, all of which decode; at most 1,024."""
    question = {"running": running, "prompt_tokens": prompt_tokens}
    answer = core.ask({**question, "warm_up": warm_up, "steps": steps})
    return msgspec.convert(answer, CoreSteps)


def peer_core_steps(
    directory: str | None,
    running: Sequence[int],
    *,
    steps: int = 256,
    tiny_model: Path | None = None,
) -> dict[int, CoreSteps] | None:
    """Of each number of running requests; None without the peer."""
    core = peer_core(directory, tiny_model)
    if core is None:
        return None
    with core:
        return {count: ask_steps(core, count, steps=steps) for count in running}
