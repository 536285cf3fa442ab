"""What serving costs when the model costs nothing: the worker `scripted` without verification.

AsyncLLM in this process with its engine core in another, and HTTP streams through `framework
serve`. Each line: output tokens/s, tokens in an output (above 1 the front end was behind, and
merged what had come), and the CPU time of each process. `python -m benchmarks serving`.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec
import psutil

import framework
from benchmarks.served import Served, scripted_arguments, tokenizer_directory
from framework import SamplingParams
from framework.bench.client import Client
from framework.bench.prompts import Fields, random_fields
from framework.bench.report import build_report
from framework.bench.run import Load, Plan, run_load
from framework.launcher import AsyncEngine
from hookspecs.types.sampling import OutputKind

__all__ = ["main"]

PROMPT_TOKENS = 128
CONNECTIONS = 64
COLUMNS = ("what", "tokens/s", "tokens/output", "CPU seconds", "µs of CPU a token")


class Turn(msgspec.Struct, frozen=True):
    """One repeat."""

    tokens: int
    seconds: float
    outputs: int
    """Objects, or chunks, in which the tokens came."""
    cpu_s: dict[str, float]
    """By process."""


def main(argv: Sequence[str] = ()) -> int:
    """Print the table."""
    parser = ArgumentParser(prog="python -m benchmarks serving", description=__doc__)
    parser.add_argument(
        "--repeats", type=int, default=5, metavar="N", help="after one that warms up"
    )
    parser.add_argument("--requests", type=int, default=256, metavar="N")
    parser.add_argument("--tokens", type=int, default=128, metavar="N", help="of each output")
    parser.add_argument("--long", type=int, default=1024, metavar="N", help="of the lone request")
    parser.add_argument("--no-text", action="store_true", help="AsyncLLM: token ids only")
    arguments = parser.parse_args(argv)
    tokenizer = tokenizer_directory()
    print("median [min..max] of", arguments.repeats, "repeats; CPU seconds are medians of a repeat")
    print("|", " | ".join(COLUMNS), "|")
    print("|---" * len(COLUMNS) + "|")
    asyncio.run(_async_llm(arguments, tokenizer))
    asyncio.run(_http(arguments, tokenizer))
    return 0


async def _async_llm(arguments: Namespace, tokenizer: str) -> None:
    config = {
        "model": {"name": "scripted", "tokenizer": tokenizer},
        "executor": {"worker": "scripted"},
        "scheduler": {"max_num_seqs": arguments.requests, "max_num_batched_tokens": 8192},
        "cache": {"num_blocks": 128 * arguments.requests},
        "stats": {"loggers": []},
        "plugins": {
            "activation": "none",
            "options": {"scripted": {"verify": False, "vocab_size": 49152}},
        },
    }
    many, tokens = arguments.requests, arguments.tokens
    async with framework.launch_async(config) as engine:
        processes = {"front end": os.getpid(), "engine core": engine.engine_pids()[0]}
        for name, requests, length, kind in (
            (f"{many} x {tokens}, deltas", many, tokens, OutputKind.DELTA),
            (f"{many} x {tokens}, final only", many, tokens, OutputKind.FINAL_ONLY),
            (f"1 x {arguments.long}, deltas", 1, arguments.long, OutputKind.DELTA),
        ):
            params = SamplingParams(
                temperature=0,
                max_tokens=length,
                ignore_eos=True,
                output_kind=kind,
                detokenize=not arguments.no_text,
            )

            async def turn(
                fields: Fields, requests: int = requests, params: SamplingParams = params
            ) -> Turn:
                return await _generate(engine, processes, fields, requests, params)

            _print(name, await _repeat(turn, arguments.repeats))


async def _generate(
    engine: AsyncEngine,
    processes: Mapping[str, int],
    fields: Fields,
    requests: int,
    params: SamplingParams,
) -> Turn:
    tokens = outputs = 0

    async def one(number: int) -> None:
        nonlocal tokens, outputs
        prompt = fields(number)["prompt"]
        async for output in engine.generate(prompt, params, request_id=f"r{number}"):
            tokens += len(output.outputs[0].token_ids)
            outputs += 1

    cpu, start = _cpu(processes), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(requests):
            group.create_task(one(number))
    seconds = time.perf_counter() - start
    return Turn(tokens, seconds, outputs, _since(cpu, processes))


async def _http(arguments: Namespace, tokenizer: str) -> None:
    settings = [
        *scripted_arguments(tokenizer, verify=False),
        "--stats.loggers=",
        "--scheduler.max_num_batched_tokens=8192",
        "--cache.num_blocks=8192",
    ]
    with Served(settings) as server:
        server_pid, core_pid = (process.pid for process in server.processes()[:2])
        processes = {"server": server_pid, "engine core": core_pid, "load generator": os.getpid()}
        client = Client(server.url, None)

        async def turn(fields: Fields) -> Turn:
            plan = Plan(
                chat=False,
                stream=True,
                chunk_usage=False,
                fields=fields,
                common={"max_tokens": arguments.tokens, "temperature": 0, "ignore_eos": True},
                concurrency=CONNECTIONS,
                rate=None,
                max_concurrency=None,
                requests=arguments.requests,
                duration_s=None,
                warmup=0,
                seed=0,
            )
            cpu = _cpu(processes)
            measured = await run_load(Load(plan, client))
            report = build_report(measured, {})
            if report.failed or report.tokens_per_chunk is None:
                raise RuntimeError(f"requests failed: {report.errors}")
            chunks = round(report.output_tokens / report.tokens_per_chunk)
            return Turn(report.output_tokens, report.wall_s, chunks, _since(cpu, processes))

        name = f"HTTP, {arguments.requests} x {arguments.tokens}, {CONNECTIONS} streams"
        _print(name, await _repeat(turn, arguments.repeats))
        client.close()


async def _repeat(turn: Callable[[Fields], Coroutine[Any, Any, Turn]], repeats: int) -> list[Turn]:
    """Each with other prompts, so that the prefix cache never helps."""
    lengths = range(PROMPT_TOKENS, PROMPT_TOKENS + 1)
    turns = [
        await turn(random_fields(lengths, token_ids=True, chat=False, seed=seed))
        for seed in range(repeats + 1)
    ]
    return turns[1:]


def _cpu(processes: Mapping[str, int]) -> dict[str, float]:
    times = {name: psutil.Process(pid).cpu_times() for name, pid in processes.items()}
    return {name: time.user + time.system for name, time in times.items()}


def _since(before: Mapping[str, float], processes: Mapping[str, int]) -> dict[str, float]:
    return {name: value - before[name] for name, value in _cpu(processes).items()}


def _print(name: str, turns: Sequence[Turn]) -> None:
    rates = [turn.tokens / turn.seconds for turn in turns]
    together = statistics.median(turn.tokens / turn.outputs for turn in turns)
    cpu = {
        process: statistics.median(turn.cpu_s[process] for turn in turns)
        for process in turns[0].cpu_s
    }
    tokens = statistics.median(turn.tokens for turn in turns)
    seconds = ", ".join(f"{process} {value:.2f}" for process, value in cpu.items())
    each = ", ".join(f"{process} {value / tokens * 1e6:.1f}" for process, value in cpu.items())
    print(
        f"| {name} | {statistics.median(rates):.0f} [{min(rates):.0f}..{max(rates):.0f}] "
        f"| {together:.2f} | {seconds} | {each} |",
        flush=True,
    )
