"""What serving costs when the model costs nothing: a worker that does nothing (`stub_worker`).

AsyncLLM in this process with its engine core in another, and HTTP streams through `framework
serve`. Each line: output tokens/s, tokens in an output (above 1 the front end was behind, and
merged what had come), and the CPU time of each process, in microseconds a token. Beside it the
same of vLLM, with a stub in place of its model.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, TypeAlias

import msgspec
import psutil

import framework
from benchmarks.engine_process import EngineProcess, peer_process
from benchmarks.measure import LoadWatch, ratios, show, spread
from benchmarks.model import small_model
from benchmarks.peer_server import PeerServed
from benchmarks.peers import Installed, find_peer, how_to_get
from benchmarks.served import TIMEOUT_S, Served, StubServed, tokenizer_directory
from benchmarks.stub_worker import PLUGINS
from benchmarks.tables import Table, add_arguments
from framework import SamplingParams
from framework.bench.client import Client
from framework.bench.prompts import Fields, random_fields
from framework.bench.report import build_report
from framework.bench.run import Load, Plan, first_model, loop_factory, run_load
from framework.launcher import AsyncEngine
from hookspecs.types.sampling import OutputKind

__all__ = ["main"]

PROMPT_TOKENS = 128
CONNECTIONS = 64
COLUMNS = ["what", "tokens/s", "tokens/output", "µs of CPU a token"]


class Turn(msgspec.Struct, frozen=True):
    """One repeat."""

    tokens: int
    seconds: float
    outputs: int
    """Objects, or chunks, in which the tokens came."""
    cpu_s: dict[str, float]
    """By process."""


OneTurn: TypeAlias = Callable[[Fields], Awaitable[Turn]]


def main(argv: Sequence[str] = ()) -> int:
    """Print the table."""
    parser = ArgumentParser(prog="python -m benchmarks serving", description=__doc__)
    parser.add_argument("--requests", type=int, default=256, metavar="N")
    parser.add_argument("--tokens", type=int, default=128, metavar="N", help="of each output")
    parser.add_argument("--long", type=int, default=1024, metavar="N", help="of the lone request")
    parser.add_argument(
        "--step-s", type=float, default=0.0016, metavar="S", help="HTTP again, with steps of this"
    )
    parser.add_argument("--no-text", action="store_true", help="our AsyncLLM: token ids only")
    add_arguments(parser, repeats=5)
    arguments = parser.parse_args(argv)
    peer = find_peer("vllm", arguments.peers)
    columns, told = COLUMNS, {}
    if peer is None:
        print(how_to_get("vllm"))
    else:
        columns = [*COLUMNS, *(f"vllm, {name}" for name in COLUMNS[1:]), "ours / vllm"]
        told = {"vllm": peer.peer.requirements[0]}
    table = Table("serving", columns, arguments, peers=told)
    tokenizer = tokenizer_directory()
    asyncio.run(_async_llm(table, arguments, tokenizer, peer))
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_http(table, arguments, tokenizer, peer))
    return 0


async def _async_llm(
    table: Table, arguments: Namespace, tokenizer: str, peer: Installed | None
) -> None:
    config = {
        "model": {"name": "scripted", "tokenizer": tokenizer},
        "executor": {"worker": "stub"},
        "scheduler": {"max_num_seqs": arguments.requests, "max_num_batched_tokens": 8192},
        "cache": {"num_blocks": 128 * arguments.requests},
        "stats": {"loggers": []},
        "plugins": {
            "activation": "none",
            "options": {"scripted": {"vocab_size": 49152}},
        },
    }
    many, tokens = arguments.requests, arguments.tokens
    with ExitStack() as stack:
        them: EngineProcess | None = None
        if peer is not None:
            model = str(small_model().directory)
            them = stack.enter_context(peer_process(peer, "vllm_async.py", model))
        async with framework.launch_async(config, plugins=PLUGINS) as engine:
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
                question = {
                    "requests": requests,
                    "prompt_tokens": PROMPT_TOKENS,
                    "tokens": length,
                    "kind": kind.name,
                }

                async def ours(
                    fields: Fields, requests: int = requests, params: SamplingParams = params
                ) -> Turn:
                    return await _generate(engine, processes, fields, requests, params)

                async def theirs(_: Fields, question: dict[str, Any] = question) -> Turn:
                    assert them is not None
                    return msgspec.convert(await asyncio.to_thread(them.ask, question), Turn)

                turns: list[OneTurn] = [ours] if them is None else [ours, theirs]
                await _compare(table, f"AsyncLLM, {name}", turns, arguments.repeats)


async def _generate(
    engine: AsyncEngine,
    processes: Mapping[str, int],
    fields: Fields,
    requests: int,
    params: SamplingParams,
) -> Turn:
    tokens = outputs = 0
    prompts = [fields(number)["prompt"] for number in range(requests)]

    async def one(number: int, prompt: Any) -> None:
        nonlocal tokens, outputs
        async for output in engine.generate(prompt, params, request_id=f"r{number}"):
            tokens += len(output.outputs[0].token_ids)
            outputs += 1

    cpu, start = _cpu(processes), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number, prompt in enumerate(prompts):
            group.create_task(one(number, prompt))
    seconds = time.perf_counter() - start
    return Turn(tokens, seconds, outputs, _since(cpu, processes))


async def _http(table: Table, arguments: Namespace, tokenizer: str, peer: Installed | None) -> None:
    for step_s in (0.0, arguments.step_s):
        await _http_row(table, arguments, tokenizer, peer if step_s == 0.0 else None, step_s)


async def _http_row(
    table: Table, arguments: Namespace, tokenizer: str, peer: Installed | None, step_s: float
) -> None:
    """With `step_s` a step takes that long, so that each token leaves by itself."""
    settings: dict[str, Any] = {
        "model": {"name": "scripted", "tokenizer": tokenizer},
        "executor": {"worker": "stub"},
        "scheduler": {"max_num_seqs": CONNECTIONS, "max_num_batched_tokens": 8192},
        "cache": {"num_blocks": 8192},
        "stats": {"loggers": []},
        "plugins": {
            "activation": "none",
            "options": {"scripted": {"vocab_size": 49152}, "stub": {"step_s": step_s}},
        },
    }
    with ExitStack() as stack:
        servers: list[Served | PeerServed] = [stack.enter_context(StubServed(settings))]
        if peer is not None:
            model = small_model().directory
            options = [f"--max-num-seqs={CONNECTIONS}", "--max-num-batched-tokens=8192"]
            servers.append(stack.enter_context(PeerServed(peer, model, options, stub=True)))
        turns = [await _streams(server, arguments) for server in servers]
        name = f"HTTP, {arguments.requests} x {arguments.tokens}, {CONNECTIONS} streams"
        if step_s:
            name += f", steps of {step_s * 1e3:g} ms"
        await _compare(table, name, turns, arguments.repeats)


async def _streams(server: Served | PeerServed, arguments: Namespace) -> OneTurn:
    server_pid, core_pid = (process.pid for process in server.processes()[:2])
    processes = {"server": server_pid, "engine core": core_pid, "load generator": os.getpid()}
    client = Client(server.url, None, TIMEOUT_S)
    common = {
        "model": await first_model(client),
        "max_tokens": arguments.tokens,
        "temperature": 0,
        "ignore_eos": True,
    }

    async def turn(fields: Fields) -> Turn:
        plan = Plan(
            chat=False,
            stream=True,
            chunk_usage=False,
            fields=fields,
            common=common,
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
        client.close()  # by its next turn the server may have closed what is idle
        report = build_report(measured, {})
        if report.failed or report.tokens_per_chunk is None:
            raise RuntimeError(f"requests failed: {report.errors}")
        chunks = round(report.output_tokens / report.tokens_per_chunk)
        return Turn(report.output_tokens, report.wall_s, chunks, _since(cpu, processes))

    return turn


async def _compare(table: Table, name: str, turns: Sequence[OneTurn], repeats: int) -> None:
    """A row: each repeat ours, then the peer's. Each has other prompts, so that the prefix cache
    never helps; the first is to warm up."""
    lengths = range(PROMPT_TOKENS, PROMPT_TOKENS + 1)
    taken: list[list[Turn]] = [[] for _ in turns]
    with LoadWatch(name) as watch:
        for seed in range(repeats + 1):
            fields = random_fields(lengths, token_ids=True, chat=False, seed=seed)
            for turn, kept in zip(turns, taken, strict=True):
                kept.append(await turn(fields))
    cells, rates = [name], []
    for kept in taken:
        rates.append([turn.tokens / turn.seconds for turn in kept[1:]])
        cells += [show(spread(rates[-1]), 0), *_told(kept[1:])]
    if len(rates) > 1:
        cells.append(show(ratios(*rates), 2))
    cells += [""] * (len(table.columns) - len(cells))  # of a row without the peer
    facts = {"load": name, "turns": taken, "foreign_cores": watch.foreign}
    table.row(cells, facts)


def _told(turns: Sequence[Turn]) -> list[str]:
    """Tokens in an output, and CPU."""
    together = statistics.median(turn.tokens / turn.outputs for turn in turns)
    cpu = [
        f"{name} {statistics.median(turn.cpu_s[name] / turn.tokens for turn in turns) * 1e6:.1f}"
        for name in turns[0].cpu_s
    ]
    return [f"{together:.2f}", ", ".join(cpu)]


def _cpu(processes: Mapping[str, int]) -> dict[str, float]:
    times = {name: psutil.Process(pid).cpu_times() for name, pid in processes.items()}
    return {name: time.user + time.system for name, time in times.items()}


def _since(before: Mapping[str, float], processes: Mapping[str, int]) -> dict[str, float]:
    return {name: value - before[name] for name, value in _cpu(processes).items()}
