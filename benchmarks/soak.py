"""A long run of `framework serve` under mixed load: does it stay as it is?

Memory of each process, open files, gauges that return to zero, counters that agree with what the
clients saw, no answer that is the server's fault. `python -m benchmarks soak --minutes 30`.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

import msgspec
import psutil

from benchmarks.served import TIMEOUT_S, Served, scripted_arguments, tokenizer_directory
from benchmarks.soak_load import Account, Mix, Sizes, client
from benchmarks.soak_samples import Memory, Sample, memory_of, metric, sample
from framework.bench.client import Client

__all__ = ["main"]

SAMPLES = 360
"""About so many, but not more than one a second."""
GROWTH_PERCENT = 2.0
"""A process is flat when the second half grows less than this, or than GROWTH_BYTES."""
GROWTH_BYTES = 4 << 20
MORE_FILES = 4
"""Descriptors that may be more at the end than before the load: what is opened when first used."""
IDLE_S = 30.0
GAUGES = (
    "framework_num_requests_running",
    "framework_num_requests_waiting",
    "framework_kv_cache_usage_perc",
)
MIB = 1 << 20


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that must hold."""

    name: str
    holds: bool
    found: str


def main(argv: Sequence[str] = ()) -> int:
    """Run, print, write; 1 when a check fails."""
    parser = ArgumentParser(prog="python -m benchmarks soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, metavar="M")
    parser.add_argument("--model", metavar="NAME", help="a real model instead of the scripted one")
    parser.add_argument("--clients", type=int, default=24, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--out", type=Path, default=Path("soak.json"), metavar="FILE")
    arguments = parser.parse_args(argv)
    sizes = Sizes(prefix=512, long_tail=3000, output=128, context=4096)
    settings = ["--stats.loggers=", "--cache.num_blocks=384"]
    if arguments.model is None:
        settings += scripted_arguments(tokenizer_directory(), verify=True)
    else:
        settings += [arguments.model, "--model.max_model_len=2048"]
        sizes = Sizes(prefix=128, long_tail=256, output=24, context=2048)
    with Served(settings) as server:
        samples, account = asyncio.run(_soak(server, arguments, sizes))
        pids = [process.pid for process in server.processes()]
        code = server.stop()
    left = [pid for pid in pids if psutil.pid_exists(pid)]
    memory = memory_of([each for each in samples[:-1] if each.sent])
    checks = _checks(samples, account, memory)
    checks.append(_check("ends by SIGTERM", code == 0 and not left, f"exit code {code}, {left}"))
    _print(arguments, samples, account, memory, checks)
    result = {
        "command": sys.argv,
        "settings": settings,
        "checks": checks,
        "memory": memory,
        "account": msgspec.to_builtins(account.__dict__, str_keys=True),
        "server_output": server.lines[-200:],
        "samples": samples,
    }
    arguments.out.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1))
    print(f"\nall samples: {arguments.out}")
    return 0 if all(check.holds for check in checks) else 1


async def _soak(server: Served, arguments: Namespace, sizes: Sizes) -> tuple[list[Sample], Account]:
    """The load, with a sample before it and one when all is idle again."""
    start = time.perf_counter()
    end = start + 60 * arguments.minutes
    account, samples, stop = Account(), [], asyncio.Event()
    watching, http = Client(server.url, None, TIMEOUT_S), Client(server.url, None, TIMEOUT_S)

    async def look() -> None:
        # The generator is watched, too: it is one of the suspects.
        processes = [*server.processes(), psutil.Process(os.getpid())]
        page = await watching.get("/metrics")
        samples.append(sample(processes, page, start, account.sent.total()))

    await look()
    await look()
    clients = [
        asyncio.create_task(client(http, Mix(arguments.seed * 1000 + at, sizes), account, stop))
        for at in range(arguments.clients)
    ]
    interval = max(1.0, 60 * arguments.minutes / SAMPLES)
    while (now := time.perf_counter()) < end:
        await asyncio.sleep(min(interval, end - now))
        await look()
        for each in clients:
            if each.done():
                each.result()
    stop.set()
    await asyncio.gather(*clients)
    http.close()
    deadline = time.perf_counter() + IDLE_S
    while True:
        await asyncio.sleep(1.0)
        await look()
        idle = all(metric(samples[-1].metrics, name) == 0 for name in GAUGES)
        if idle or time.perf_counter() > deadline:
            break
        samples.pop()
    watching.close()
    return samples, account


def _checks(samples: Sequence[Sample], account: Account, memory: Sequence[Memory]) -> list[Check]:
    first, last = samples[1], samples[-1]
    checks = [
        _check(f"{name} is 0", (value := metric(last.metrics, name)) == 0, f"{value:g}")
        for name in GAUGES
    ]
    bad = {status: count for status, count in account.statuses.items() if status >= 500}
    checks.append(_check("no 5xx", not bad, str(bad or "none")))
    wrong = "; ".join(f"{count} x {what}" for what, count in account.wrong.most_common(5))
    checks.append(_check("every answer as expected", not wrong, wrong or "yes"))
    for name, label, low, more in (
        ("framework_requests_total", "", account.outputs, account.gone_outputs),
        (
            "framework_generation_tokens_total",
            "",
            account.output_tokens,
            account.gone_output_tokens,
        ),
        ("framework_prompt_tokens_total", "", account.prompt_tokens, account.gone_prompt_tokens),
        ("framework_requests_total", 'finish_reason="abort"', 0, account.gone_outputs),
        ("framework_requests_total", 'finish_reason="error"', 0, 0),
        ("framework_requests_total", 'finish_reason="timeout"', 0, 0),
        ("framework_plugin_errors_total", "", 0, 0),
        ("framework_invalid_values_total", "", 0, 0),
    ):
        value = metric(last.metrics, name, label)
        checks.append(
            _check(
                f"{name} {label}".strip(),
                low <= value <= low + more,
                f"{value:.0f}; clients: {low} to {low + more}",
            )
        )
    for each in memory:
        flat = each.growth_percent < GROWTH_PERCENT or each.growth_bytes < GROWTH_BYTES
        checks.append(
            _check(f"memory of {each.process} is flat", flat, f"{each.growth_percent:+.2f} %")
        )
    for process, before in first.files.items():
        after = last.files.get(process, -1)
        fine = 0 <= after <= before + MORE_FILES
        checks.append(_check(f"open files of {process}", fine, f"{before}, at the end {after}"))
    return checks


def _check(name: str, holds: bool, found: str) -> Check:
    return Check(name=name, holds=holds, found=found)


def _print(
    arguments: Namespace,
    samples: Sequence[Sample],
    account: Account,
    memory: Sequence[Memory],
    checks: Sequence[Check],
) -> None:
    middle = samples[len(samples) // 2]
    rates = [
        (later.sent - earlier.sent) / (later.at_s - earlier.at_s)
        for earlier, later in ((samples[1], middle), (middle, samples[-2]))
    ]
    tokens = metric(samples[-1].metrics, "framework_generation_tokens_total")
    hits = metric(samples[-1].metrics, "framework_prefix_cache_hits_total")
    preempted = metric(samples[-1].metrics, "framework_num_preemptions_total")
    print(
        f"{arguments.minutes:g} min, {arguments.clients} clients, {account.sent.total()} requests "
        f"({rates[0]:.1f}/s in the first half, {rates[1]:.1f}/s in the second), {tokens:.0f} "
        f"tokens generated, {hits:.0f} prompt tokens from the cache, {preempted:.0f} preemptions"
    )
    print("sent:", ", ".join(f"{kind} {count}" for kind, count in sorted(account.sent.items())))
    print("answers:", ", ".join(f"{key} {n}" for key, n in sorted(account.statuses.items())))
    print(
        "\n| process | MiB at start | MiB at end | second half, MiB/h | growth | files | threads |"
    )
    print("|---|---|---|---|---|---|---|")
    for each in memory:
        print(
            f"| {each.process} | {each.first_bytes / MIB:.1f} | {each.last_bytes / MIB:.1f} "
            f"| {each.bytes_per_hour / MIB:+.1f} | {each.growth_percent:+.2f} % "
            f"| {samples[-1].files.get(each.process)} | {samples[-1].threads.get(each.process)} |"
        )
    print("\n| check | holds | found |")
    print("|---|---|---|")
    for check in checks:
        print(f"| {check.name} | {'yes' if check.holds else '**NO**'} | {check.found} |")
