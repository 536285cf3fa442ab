"""`framework chat`: a conversation in the terminal."""

from __future__ import annotations

import contextlib
import sys
from argparse import ArgumentParser, Namespace
from typing import Final

from framework.cli.command import Command, Handle, Session
from framework.cli.engine import add_model_argument, open_engine
from framework.cli.sampling_flags import add_sampling_flags, sampling_params
from framework.frontend.interrupt import deferred_interrupt
from hookspecs.errors import RequestError
from hookspecs.types.outputs import RequestOutput
from hookspecs.types.sampling import SamplingParams

__all__ = ["COMMAND"]

EXIT: Final = "/exit"
RESET: Final = "/reset"
PROMPT: Final = "> "

Message = dict[str, str]


def _add_arguments(parser: ArgumentParser) -> None:
    add_model_argument(parser)
    add_sampling_flags(parser)


def _run(arguments: Namespace, session: Session) -> int:
    with open_engine(arguments, session) as engine:
        params = sampling_params(arguments, engine.default_params())
        if sys.stdin.isatty():
            print(
                f"Ctrl-C stops an answer; {RESET} forgets the conversation; {EXIT} or Ctrl-D ends."
            )
        messages: list[Message] = []
        while (line := _read_line()) is not None:
            if line == RESET:
                messages.clear()
            elif line:
                _turn(engine, messages, line, params)
    return 0


def _read_line() -> str | None:
    """The user's next line, stripped; None at the end."""
    try:
        line = input(PROMPT if sys.stdin.isatty() else "").strip()
    except EOFError:
        return None
    return None if line == EXIT else line


def _turn(engine: Handle, messages: list[Message], line: str, params: SamplingParams) -> None:
    """Ask and answer once. A request that fails leaves the conversation as it was."""
    asked = [*messages, {"role": "user", "content": line}]
    try:
        answer = _stream(engine, asked, params)
    except RequestError as error:
        hint = f" ({RESET} forgets the conversation)" if messages else ""
        print(f"framework: error: {error}{hint}", file=sys.stderr)
        return
    if answer:
        messages[:] = [*asked, {"role": "assistant", "content": answer}]


def _stream(engine: Handle, messages: list[Message], params: SamplingParams) -> str:
    """Print the answer as it comes; returns what there is of it."""
    pieces: list[str] = []
    with deferred_interrupt() as interrupt, contextlib.ExitStack() as stack:
        outputs = engine.stream(engine.chat_prompt(messages), params)
        close = getattr(outputs, "close", None)
        if close is not None:
            stack.callback(close)  # aborts a request that has not finished
        for output in outputs:
            pieces.append(_delta(output))
            print(pieces[-1], end="", flush=True)
            if interrupt.requested:
                break
    print()
    return "".join(pieces)


def _delta(output: RequestOutput) -> str:
    part = output.outputs[0]
    if part.error is not None:
        print(f"\nframework: error: {part.error}", file=sys.stderr)
    return part.text


COMMAND = Command(
    path=("chat",),
    help="talk to a model in the terminal",
    run=_run,
    add_arguments=_add_arguments,
)
