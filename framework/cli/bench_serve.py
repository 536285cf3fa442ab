"""`framework bench serve`: load on a running server."""

from __future__ import annotations

import asyncio
import math
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import TYPE_CHECKING, Any, Final

from framework.cli.command import Command, Session
from framework.cli.exits import FAILURE, INTERRUPTED
from framework.cli.output import add_json_flag, print_json, print_table
from hookspecs.errors import ConfigError, MissingDependencyError

if TYPE_CHECKING:
    from framework.bench.client import Client
    from framework.bench.report import LoadReport
    from framework.bench.run import Plan
    from framework.bench.statistics import Distribution

__all__ = ["COMMAND"]

_REQUESTS: Final = 200
"""Without --requests and --duration."""
_ERRORS: Final = 10
"""Kinds of error that are listed."""
_BUSY: Final = 0.8
"""Share of a core from which the generator may be what limits."""


def _add_arguments(parser: ArgumentParser) -> None:
    server = parser.add_argument_group("server")
    server.add_argument("--url", default="http://127.0.0.1:8000", help="default %(default)s")
    server.add_argument("--model", metavar="NAME", help="default: the first of /v1/models")
    server.add_argument("--api-key", metavar="KEY", help="sent as a bearer token")
    server.add_argument(
        "--endpoint",
        choices=("completions", "chat"),
        default="completions",
        help="default %(default)s",
    )
    load = parser.add_argument_group(
        "load", "A closed loop sends a client's next request when it has the answer; an open loop "
        "sends whatever is answered, and counts latency from the scheduled arrival."
    )  # fmt: skip
    load.add_argument(
        "--concurrency", type=_positive, default=16, metavar="N",
        help="clients of a closed loop, and of the warm-up; default %(default)s",
    )  # fmt: skip
    load.add_argument(
        "--rate", type=_positive_number, metavar="R",
        help="open loop: requests/s, with Poisson arrivals",
    )  # fmt: skip
    load.add_argument(
        "--max-concurrency", type=_positive, metavar="N",
        help="open loop: requests at the server at once; others wait, and that counts",
    )  # fmt: skip
    load.add_argument(
        "--requests", type=_positive, metavar="N",
        help=f"how many to send; default {_REQUESTS} without --duration",
    )  # fmt: skip
    load.add_argument(
        "--duration", type=_positive_number, metavar="S",
        help="seconds until the last is sent; answers are waited for",
    )  # fmt: skip
    load.add_argument(
        "--warmup", type=_count, default=0, metavar="N",
        help="requests before, which are not counted; default %(default)s",
    )  # fmt: skip
    load.add_argument(
        "--seed", type=_count, default=0, metavar="N",
        help="of prompts, arrivals and sampling; default %(default)s",
    )  # fmt: skip
    asked = parser.add_argument_group("requests")
    asked.add_argument(
        "--prompts", choices=("words", "tokens"), default="words",
        help="random words, or random token ids (completions only); default %(default)s",
    )  # fmt: skip
    asked.add_argument(
        "--prompt-tokens", type=_lengths, default=range(128, 129), metavar="N[-M]",
        help="words or ids of a prompt; default 128",
    )  # fmt: skip
    asked.add_argument(
        "--dataset", metavar="FILE",
        help="JSON lines with `prompt` or `messages` instead, used in their order",
    )  # fmt: skip
    asked.add_argument(
        "--max-tokens", type=_positive, default=128, metavar="N",
        help="of an output; default %(default)s",
    )  # fmt: skip
    asked.add_argument(
        "--ignore-eos", action="store_true",
        help="outputs of full length (not every server knows it)",
    )  # fmt: skip
    asked.add_argument(
        "--temperature", type=_temperature, default=0.0, metavar="T", help="default 0"
    )
    asked.add_argument("--no-stream", action="store_true", help="ask for answers in one piece")
    asked.add_argument(
        "--chunk-usage", action="store_true",
        help="ask for the usage in every chunk, to count the tokens of each exactly (not every "
        "server knows it, and it costs the server time)",
    )  # fmt: skip
    add_json_flag(parser)


def _run(arguments: Namespace, session: Session) -> int:
    _check(arguments)
    try:
        from framework.bench.client import Client
        from framework.bench.report import build_report
        from framework.bench.run import Load, first_model, run_load
    except ModuleNotFoundError as error:
        if error.name != "httptools":
            raise
        raise MissingDependencyError(
            "`framework bench serve` needs the extra `bench`: pip install 'engine-framework[bench]'"
        ) from error

    async def measure() -> LoadReport:
        client = Client(arguments.url, arguments.api_key)
        try:
            model = arguments.model or await first_model(client)
            plan = _plan(arguments, model)
            return build_report(
                await run_load(Load(plan, client)), _settings(arguments, plan, client)
            )
        finally:
            client.close()

    report = asyncio.run(measure())
    if arguments.json:
        print_json(report)
    else:
        _print(report)
    if report.interrupted:
        return INTERRUPTED
    return FAILURE if report.failed and not report.completed else 0


def _check(arguments: Namespace) -> None:
    if arguments.max_concurrency is not None and arguments.rate is None:
        raise ConfigError("--max-concurrency is of an open loop; give --rate, or --concurrency")
    chat = arguments.endpoint == "chat"
    if chat and arguments.prompts == "tokens":
        raise ConfigError("--prompts tokens: a chat has no token ids; use --endpoint completions")
    if arguments.no_stream and arguments.chunk_usage:
        raise ConfigError("--chunk-usage is of streams; leave --no-stream out")


def _plan(arguments: Namespace, model: str) -> Plan:
    from framework.bench.prompts import dataset_fields, random_fields
    from framework.bench.run import Plan

    chat = arguments.endpoint == "chat"
    common: dict[str, Any] = {
        "model": model,
        "max_tokens": arguments.max_tokens,
        "temperature": arguments.temperature,
    }
    if arguments.temperature > 0:
        common["seed"] = arguments.seed
    if arguments.ignore_eos:
        common["ignore_eos"] = True
    fields = (
        random_fields(
            arguments.prompt_tokens,
            token_ids=arguments.prompts == "tokens",
            chat=chat,
            seed=arguments.seed,
        )
        if arguments.dataset is None
        else dataset_fields(arguments.dataset, chat=chat)
    )
    requests, duration = arguments.requests, arguments.duration
    return Plan(
        chat=chat,
        stream=not arguments.no_stream,
        chunk_usage=arguments.chunk_usage,
        fields=fields,
        common=common,
        concurrency=arguments.concurrency,
        rate=arguments.rate,
        max_concurrency=arguments.max_concurrency,
        requests=_REQUESTS if requests is None and duration is None else requests,
        duration_s=duration,
        warmup=arguments.warmup,
        seed=arguments.seed,
    )


def _settings(arguments: Namespace, plan: Plan, client: Client) -> dict[str, Any]:
    lengths: range = arguments.prompt_tokens
    return {
        "url": client.url,
        "endpoint": arguments.endpoint,
        "stream": plan.stream,
        **plan.common,
        "prompts": arguments.dataset or arguments.prompts,
        "prompt_tokens": None if arguments.dataset else [lengths[0], lengths[-1]],
        "concurrency": plan.concurrency if plan.rate is None else None,
        "rate": plan.rate,
        "max_concurrency": plan.max_concurrency,
        "requests": plan.requests,
        "duration_s": plan.duration_s,
        "warmup": plan.warmup,
        "seed": plan.seed,
    }


def _print(report: LoadReport) -> None:
    settings = report.settings
    loop = (
        f"open loop, {settings['rate']:g} requests/s"
        if settings["rate"] is not None
        else f"closed loop, {settings['concurrency']} clients"
    )
    print(f"{settings['model']} at {settings['url']}, {settings['endpoint']}, {loop}")
    rows = [
        ("wall time", f"{report.wall_s:.2f} s"),
        ("requests completed / failed / unfinished",
         f"{report.completed} / {report.failed} / {report.unfinished}"),
        ("requests/s", f"{report.requests_per_s:.2f}"),
        ("output tokens/s", f"{report.output_tokens_per_s:.1f}"),
        ("prompt and output tokens/s", f"{report.total_tokens_per_s:.1f}"),
        ("prompt / output tokens", f"{report.prompt_tokens} / {report.output_tokens}"),
        ("tokens per chunk", _number(report.tokens_per_chunk)),
        ("CPU time of the generator",
         f"{report.generator_cpu_s:.2f} s ({report.generator_cpu_share:.0%} of a core)"),
    ]  # fmt: skip
    print_table(("", "value"), rows)
    latencies = [
        ("time to first token", report.ttft_ms),
        ("inter-token latency", report.itl_ms),
        ("end to end", report.e2e_ms),
        ("delay of sending", report.delay_ms),
    ]
    columns = ("milliseconds", "mean", "median", "p90", "p95", "p99", "max")
    print_table(columns, [_latency(*row) for row in latencies if row[1] is not None])
    print("percentiles by nearest rank; inter-token latency by token")
    if report.without_usage:
        print(
            f"{report.without_usage} answers had no usage: their chunks are counted as tokens, "
            "their prompts not at all"
        )
    if report.generator_cpu_share > _BUSY:
        print(
            "the generator was busy nearly all the time: it limits the load, and latencies "
            "include its own delay"
        )
    if report.errors:
        shown = [
            (str(error.count), error.kind, str(error.status or "-"), error.message)
            for error in report.errors[:_ERRORS]
        ]
        print_table(("errors", "kind", "status", "message"), shown)
        if len(report.errors) > _ERRORS:
            print(f"and {len(report.errors) - _ERRORS} other errors, see --json")
    sys.stdout.flush()


def _latency(name: str, found: Distribution | None) -> tuple[str, ...]:
    assert found is not None
    values = (found.mean, found.median, found.p90, found.p95, found.p99, found.max)
    return (name, *(f"{value:.2f}" for value in values))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _positive(text: str) -> int:
    return _whole(text, 1)


def _count(text: str) -> int:
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise ArgumentTypeError(f"{text!r} is no whole number of {least} or more")
    return value


def _positive_number(text: str) -> float:
    value = _real(text)
    if not 0 < value < math.inf:
        raise ArgumentTypeError(f"{text!r} is no number above 0")
    return value


def _temperature(text: str) -> float:
    value = _real(text)
    if not 0 <= value < math.inf:
        raise ArgumentTypeError(f"{text!r} is no number of 0 or more")
    return value


def _real(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _lengths(text: str) -> range:
    """`N` or `N-M`, both included."""
    low, dash, high = text.partition("-")
    first = _positive(low)
    last = _positive(high) if dash else first
    if last < first:
        raise ArgumentTypeError(f"{text!r}: the second number is below the first")
    return range(first, last + 1)


COMMAND = Command(
    path=("bench", "serve"),
    help="put load on a running OpenAI-compatible server, and measure it",
    run=_run,
    add_arguments=_add_arguments,
)
