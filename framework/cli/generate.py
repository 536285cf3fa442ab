"""`framework generate`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import Final

from framework.cli.command import Command, Session
from framework.cli.engine import add_model_argument, open_engine
from framework.cli.exits import FAILURE
from framework.cli.output import add_json_flag, print_json
from framework.cli.sampling_flags import (
    add_sampling_flags,
    check_sampling_flags,
    sampling_params,
)
from hookspecs.errors import InvalidRequestError
from hookspecs.types.outputs import RequestOutput

__all__ = ["COMMAND"]

MAX_TOKENS: Final = 128
"""Output tokens when no flag says how many."""


def _add_arguments(parser: ArgumentParser) -> None:
    add_model_argument(parser)
    parser.add_argument(
        "--prompt",
        action="append",
        metavar="TEXT",
        help="repeatable; without it, each line of standard input is a prompt",
    )
    add_json_flag(parser)
    add_sampling_flags(parser)


def _run(arguments: Namespace, session: Session) -> int:
    check_sampling_flags(arguments)
    prompts = arguments.prompt or _read_prompts()
    with open_engine(arguments, session) as engine:
        params = sampling_params(arguments, engine.default_params(), max_tokens=MAX_TOKENS)
        progress = sys.stderr.isatty() and not arguments.json
        outputs = engine.generate(prompts, params, progress=progress)
    if arguments.json:
        print_json(outputs)
    else:
        for prompt, output in zip(prompts, outputs, strict=True):
            print(_text(prompt, output))
    failed = any(part.finish_reason == "error" for output in outputs for part in output.outputs)
    return FAILURE if failed else 0


def _read_prompts() -> list[str]:
    if sys.stdin.isatty():
        raise InvalidRequestError("No prompt: give --prompt TEXT, or lines on standard input.")
    prompts = [line.rstrip("\n") for line in sys.stdin if line.strip()]
    if not prompts:
        raise InvalidRequestError("No prompt: standard input has no line that is not empty.")
    return prompts


def _text(prompt: str, output: RequestOutput) -> str:
    lines = [f">>> {prompt}"]
    for part in output.outputs:
        end = part.finish_reason if part.error is None else f"{part.finish_reason}: {part.error}"
        lines += [part.text, f"[{len(part.token_ids)} tokens, {end}]"]
    return "\n".join(lines)


COMMAND = Command(
    path=("generate",),
    help=f"generate text for prompts, up to {MAX_TOKENS} tokens each unless a flag says else",
    run=_run,
    add_arguments=_add_arguments,
)
