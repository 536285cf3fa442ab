"""Runs in vLLM's environment: AsyncLLM in this process, its engine core with the stub in another.

`vllm_async.py MODEL`, whose tokenizer is used. A question has `requests`, `prompt_tokens`,
`tokens` of each output, and `kind` (DELTA or FINAL_ONLY); the answer has seconds, tokens, the
objects in which they came, and the CPU seconds of both processes.
"""

import asyncio
import json
import os
import sys
import time
from random import Random
from typing import Any

from lines import Lines


async def serve(lines: Lines) -> None:
    """Answer questions."""
    import vllm
    from vllm import SamplingParams, TokensPrompt
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.async_llm import AsyncLLM

    engine = AsyncLLM.from_engine_args(
        AsyncEngineArgs(
            model=sys.argv[1],
            dtype="float32",
            max_model_len=2048,
            max_num_seqs=256,
            max_num_batched_tokens=8192,
            distributed_executor_backend="vllm_stub.StubExecutor",
            disable_log_stats=True,
            enable_prefix_caching=True,
            enforce_eager=True,
            seed=0,
        )
    )
    core = children()[0]
    draw = Random(0)
    serial = 0

    async def one(params: Any, ids: list[int]) -> tuple[int, int]:
        nonlocal serial
        serial += 1
        prompt = TokensPrompt(prompt_token_ids=ids)
        tokens = outputs = 0
        async for output in engine.generate(prompt, params, f"r{serial}"):
            tokens += len(output.outputs[0].token_ids)
            outputs += 1
        return tokens, outputs

    async def ask(question: dict[str, Any]) -> dict[str, Any]:
        params = SamplingParams(
            temperature=0.0,
            max_tokens=question["tokens"],
            ignore_eos=True,
            output_kind=RequestOutputKind[question["kind"]],
        )
        length = question["prompt_tokens"]
        prompts = [draw.choices(range(100, 49000), k=length) for _ in range(question["requests"])]
        front, back, begin = cpu_s(os.getpid()), cpu_s(core), time.perf_counter()
        done = await asyncio.gather(*(one(params, ids) for ids in prompts))
        return {
            "seconds": time.perf_counter() - begin,
            "tokens": sum(tokens for tokens, _ in done),
            "outputs": sum(outputs for _, outputs in done),
            "cpu_s": {
                "front end": cpu_s(os.getpid()) - front,
                "engine core": cpu_s(core) - back,
            },
        }

    lines.ready(version=vllm.__version__)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        lines.put(await ask(json.loads(line)))
    engine.shutdown()


def children() -> list[int]:
    """Of this process, that began an engine (Linux); the largest first."""
    found = []
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            found.append((int(fields[21]), int(name)))
    return [pid for _, pid in sorted(found, reverse=True)]


def cpu_s(pid: int) -> float:
    """User and system time of a process (Linux)."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    asyncio.run(serve(Lines()))
