"""`framework bench serve`: load on a running server."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from framework.cli.bench_arguments import REQUESTS, add_arguments, check
from framework.cli.bench_report import print_failures, print_loops, print_report
from framework.cli.command import Command, Session
from framework.cli.exits import FAILURE, INTERRUPTED
from framework.cli.output import print_json
from hookspecs.errors import MissingDependencyError

if TYPE_CHECKING:
    from framework.bench.client import Client
    from framework.bench.prompts import Chosen, Fields
    from framework.bench.report import LoadReport, Objectives
    from framework.bench.run import Plan

__all__ = ["COMMAND"]


def _run(arguments: Namespace, session: Session) -> int:
    check(arguments)
    try:
        from framework.bench.run import loop_factory
    except ModuleNotFoundError as error:
        if error.name != "httptools":
            raise
        raise MissingDependencyError(
            "`framework bench serve` needs the extra `bench`: pip install 'engine-framework[bench]'"
        ) from error
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        reports = runner.run(_measure(arguments))
    if arguments.json:
        print_json(reports if _is_series(arguments) else reports[0])
    elif _is_series(arguments):
        print_loops(reports)
    else:
        print_report(reports[0])
    failed = print_failures(reports)
    if reports[-1].interrupted:
        return INTERRUPTED
    return FAILURE if failed else 0


def _is_series(arguments: Namespace) -> bool:
    """Whether there may be several loops."""
    return len(arguments.rate) > 1 or any(rate.of_capacity for rate in arguments.rate)


async def _measure(arguments: Namespace) -> list[LoadReport]:
    """One loop after the other, each with prompts of its own."""
    from framework.bench.client import Client
    from framework.bench.report import build_report
    from framework.bench.run import Load, first_model, run_load

    reports: list[LoadReport] = []
    client = Client(arguments.url, arguments.api_key, arguments.timeout)

    async def measure(rate: float | None) -> LoadReport:
        plan = _plan(arguments, model, rate, number=len(reports))
        run = await run_load(Load(plan, client))
        report = build_report(run, _settings(arguments, plan, client), _objectives(arguments))
        reports.append(report)
        return report

    try:
        model = arguments.model or await first_model(client)
        capacity = 0.0
        if not arguments.rate or any(rate.of_capacity for rate in arguments.rate):
            capacity = (await measure(None)).requests_per_s
        for rate in arguments.rate:
            value = rate.value * capacity if rate.of_capacity else rate.value
            if not value or (reports and reports[-1].interrupted):
                break
            await measure(value)
    finally:
        client.close()
    return reports


def _plan(arguments: Namespace, model: str, rate: float | None, *, number: int) -> Plan:
    from framework.bench.run import Plan

    common: dict[str, Any] = {
        "model": model,
        "max_tokens": arguments.max_tokens,
        "temperature": arguments.temperature,
    }
    if arguments.temperature > 0:
        common["seed"] = arguments.seed
    if arguments.ignore_eos:
        common["ignore_eos"] = True
    seed = arguments.seed + number
    fields, is_long = _prompts(arguments, seed)
    requests, duration = arguments.requests, arguments.duration
    return Plan(
        chat=arguments.endpoint == "chat",
        stream=not arguments.no_stream,
        chunk_usage=arguments.chunk_usage,
        fields=fields,
        common=common,
        concurrency=arguments.concurrency,
        rate=rate,
        max_concurrency=arguments.max_concurrency,
        requests=REQUESTS if requests is None and duration is None else requests,
        duration_s=duration,
        warmup=0 if number else arguments.warmup,
        seed=seed,
        is_long=is_long,
    )


def _prompts(arguments: Namespace, seed: int) -> tuple[Fields, Chosen]:
    """The prompts, and which of them are long."""
    from framework.bench.prompts import chosen, dataset_fields, mixed_fields, random_fields

    chat = arguments.endpoint == "chat"
    is_long = chosen(arguments.long_prompts, seed)
    if arguments.dataset is not None:
        return dataset_fields(arguments.dataset, chat=chat), is_long

    def made(lengths: range) -> Fields:
        token_ids = arguments.prompts == "tokens"
        return random_fields(lengths, token_ids=token_ids, chat=chat, seed=seed)

    fields = made(arguments.prompt_tokens)
    if arguments.long_prompts:
        long = range(arguments.long_tokens, arguments.long_tokens + 1)
        fields = mixed_fields(fields, made(long), is_long)
    return fields, is_long


def _objectives(arguments: Namespace) -> Objectives | None:
    from framework.bench.report import Objectives

    given = Objectives(
        ttft_ms=arguments.good_ttft, itl_ms=arguments.good_itl, e2e_ms=arguments.good_e2e
    )
    return None if given == Objectives() else given


def _settings(arguments: Namespace, plan: Plan, client: Client) -> dict[str, Any]:
    lengths: range = arguments.prompt_tokens
    return {
        "url": client.url,
        "timeout_s": arguments.timeout,
        "endpoint": arguments.endpoint,
        "stream": plan.stream,
        **plan.common,
        "prompts": arguments.dataset or arguments.prompts,
        "prompt_tokens": None if arguments.dataset else [lengths[0], lengths[-1]],
        "long_prompts": arguments.long_prompts,
        "long_tokens": arguments.long_tokens if arguments.long_prompts else None,
        "objectives": _objectives(arguments),
        "concurrency": plan.concurrency if plan.rate is None else None,
        "rate": plan.rate,
        "max_concurrency": plan.max_concurrency,
        "requests": plan.requests,
        "duration_s": plan.duration_s,
        "warmup": plan.warmup,
        "seed": plan.seed,
    }


COMMAND = Command(
    path=("bench", "serve"),
    help="put load on a running OpenAI-compatible server, and measure it; exit code 1 if a request "
    "failed",
    run=_run,
    add_arguments=add_arguments,
)
