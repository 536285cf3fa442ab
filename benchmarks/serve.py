"""Servers under load, with the real small model: ours beside vLLM's, by one load generator.

All loads are streams. A closed loop of the workload W5; open loops at shares of what each server
can do, which is its rate in a closed loop of 64; streams that decode while long prompts arrive;
and the closed loop again beside a process that keeps a core busy. Servers take turns.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import msgspec

from benchmarks.measure import LoadWatch, ratios, show, spread
from benchmarks.model import MODEL, Model, small_model, w8a8_directory
from benchmarks.peer_server import PeerServed
from benchmarks.peers import find_peer, how_to_get
from benchmarks.served import TIMEOUT_S, Served
from benchmarks.tables import Table, add_arguments
from benchmarks.workloads import WORKLOADS, Workload
from framework.bench.client import Client
from framework.bench.record import RequestRecord
from framework.bench.report import LoadReport, Measured, build_report
from framework.bench.run import Load, Plan, first_model

__all__ = ["main"]

W5 = WORKLOADS["W5"]
CLIENTS = 16
CAPACITY_CLIENTS = 64
SHARES = (0.5, 0.8, 0.95)
STREAMS = Workload(name="streams", about="decode", requests=16, own=64, new_tokens=128)
LONG = Workload(name="long prompts", about="prefill", requests=8, own=1536, new_tokens=1)
LONG_PER_S = 0.5
LOADS = ("closed", "open", "mixed", "busy")


class Server(msgspec.Struct, frozen=True):
    """One that is asked."""

    name: str
    url: str


class Arrivals(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of a workload, and how they come."""

    workload: Workload
    requests: int
    clients: int | None = None
    """Of a closed loop."""
    rate: float | None = None
    """Requests/s of an open one."""


FIGURES: dict[str, Callable[[LoadReport], float]] = {
    "output tokens/s": lambda report: report.output_tokens_per_s,
    "first token p50, ms": lambda report: _of(report.ttft_ms).median,
    "first token p99, ms": lambda report: _of(report.ttft_ms).p99,
    "inter-token p50, ms": lambda report: _of(report.itl_ms).median,
    "inter-token p99, ms": lambda report: _of(report.itl_ms).p99,
}


def main(argv: Sequence[str] = ()) -> int:
    """Print the table."""
    parser = ArgumentParser(prog="python -m benchmarks serve", description=__doc__)
    parser.add_argument("--loads", default=",".join(LOADS), metavar="NAME,…", help="default: all")
    parser.add_argument("--quantization", choices=["int8"], help="default: float32")
    parser.add_argument(
        "--eager", action="store_true", help="vLLM does not compile: starts a minute sooner"
    )
    parser.add_argument("--requests", type=int, default=W5.requests, metavar="N", help="of a loop")
    add_arguments(parser, repeats=3)
    arguments = parser.parse_args(argv)
    loads = arguments.loads.split(",")
    if unknown := [name for name in loads if name not in LOADS]:
        parser.error(f"{unknown[0]!r}: there are {', '.join(LOADS)}")
    with ExitStack() as stack:
        servers, told = _servers(stack, small_model(), arguments)
        columns = ["load", "figure"] + [server.name for server in servers]
        if len(servers) > 1:
            columns.append("ours / vllm")
        table = Table("serve", columns, arguments, peers=told)
        asyncio.run(_measure(table, servers, loads, arguments))
    return 0


def _servers(
    stack: ExitStack, model: Model, arguments: Namespace
) -> tuple[list[Server], dict[str, str]]:
    options = ["--model.max_model_len=2048", "--stats.loggers=", "--plugins.activation=none"]
    if arguments.quantization:
        options.append(f"--model.quantization={arguments.quantization}")
    ours = stack.enter_context(Served([MODEL, *options]))
    servers = [Server("ours", ours.url)]
    peer = find_peer("vllm", arguments.peers)
    if peer is None:
        print(how_to_get("vllm"))
        return servers, {}
    path = w8a8_directory(model) if arguments.quantization else model.directory
    eager = ["--enforce-eager"] if arguments.eager else []
    theirs = stack.enter_context(PeerServed(peer, path, eager))
    return [*servers, Server("vllm", theirs.url)], {"vllm": peer.peer.requirements[0]}


async def _measure(
    table: Table, servers: Sequence[Server], loads: Sequence[str], arguments: Namespace
) -> None:
    repeats, requests = arguments.repeats, arguments.requests
    closed = Arrivals(workload=W5, requests=requests, clients=CLIENTS)
    for server in servers:
        await _run(server, Arrivals(workload=W5, requests=CLIENTS, clients=CLIENTS), -1)
    if "closed" in loads:
        await _compare(table, f"{CLIENTS} clients", servers, repeats, lambda _: [closed])
    if "open" in loads:
        full = Arrivals(workload=W5, requests=2 * requests, clients=CAPACITY_CLIENTS)
        most = {server.name: (await _run(server, full, -2)).requests_per_s for server in servers}
        told = ", ".join(f"{name} {rate:.2f}" for name, rate in most.items())
        for share in SHARES:

            def loads_of(server: Server, share: float = share) -> list[Arrivals]:
                return [Arrivals(workload=W5, requests=requests, rate=share * most[server.name])]

            name = f"open loop at {share:.0%} of its capacity ({told} requests/s)"
            await _compare(table, name, servers, repeats, loads_of)
    if "mixed" in loads:
        streams = Arrivals(
            workload=STREAMS, requests=2 * STREAMS.requests, clients=STREAMS.requests
        )
        long = Arrivals(workload=LONG, requests=LONG.requests, rate=LONG_PER_S)
        name = f"{STREAMS.requests} streams"
        await _compare(table, f"{name} alone", servers, repeats, lambda _: [streams])
        name += f", {LONG_PER_S:g} prompts/s of {LONG.own} tokens beside"
        await _compare(table, name, servers, repeats, lambda _: [streams, long])
    if "busy" in loads:
        with _BusyCore():
            name = f"{CLIENTS} clients, a core is busy"
            await _compare(table, name, servers, repeats, lambda _: [closed], busy=True)


async def _compare(
    table: Table,
    name: str,
    servers: Sequence[Server],
    repeats: int,
    loads_of: Callable[[Server], Sequence[Arrivals]],
    *,
    busy: bool = False,
) -> None:
    """A row for each figure of the first load; others run beside it."""
    reports: dict[str, list[LoadReport]] = {server.name: [] for server in servers}
    with LoadWatch(name) as watch:
        for repeat in range(repeats):
            for server in servers:
                runs = [_run(server, load, repeat) for load in loads_of(server)]
                reports[server.name].append((await asyncio.gather(*runs))[0])
    for figure, read in FIGURES.items():
        values = {name: [read(report) for report in each] for name, each in reports.items()}
        cells = [show(spread(each)) for each in values.values()]
        if len(values) > 1:
            cells.append(show(ratios(values["ours"], values["vllm"]), 2))
        facts = {"load": name, "figure": figure, "values": values, "busy": busy}
        table.row([name, figure, *cells], {**facts, "foreign_cores": watch.foreign})


async def _run(server: Server, load: Arrivals, repeat: int) -> LoadReport:
    """Prompts are others in each repeat, so that the prefix cache never helps."""
    client = Client(server.url, None, TIMEOUT_S)
    prompts = load.workload.prompts(variant=repeat)

    def fields(number: int) -> dict[str, Any]:
        return {"prompt": prompts[number % len(prompts)]}

    plan = Plan(
        chat=False,
        stream=True,
        chunk_usage=False,
        fields=fields,
        common={
            "model": await first_model(client),
            "max_tokens": load.workload.new_tokens,
            "temperature": 0,
            "ignore_eos": True,
        },
        concurrency=load.clients or 1,
        rate=load.rate,
        max_concurrency=None,
        requests=load.requests,
        duration_s=None,
        warmup=0,
        seed=repeat,
    )
    records: list[RequestRecord] = []
    begin, cpu = time.perf_counter(), time.process_time()
    await Load(plan, client).run(records)
    measured = Measured(
        records=records,
        wall_s=time.perf_counter() - begin,
        cpu_s=time.process_time() - cpu,
        open_loop=load.rate is not None,
        interrupted=False,
    )
    client.close()
    report = build_report(measured, {})
    if report.failed:
        raise RuntimeError(f"{server.name}: requests failed: {report.errors}")
    return report


def _of(values: Any) -> Any:
    if values is None:
        raise RuntimeError("the server did not stream")
    return values


class _BusyCore:
    """`with` it: a process computes without end, as a neighbour that shares the machine."""

    def __enter__(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", "while True: pass"])

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
