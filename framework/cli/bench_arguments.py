"""The arguments of `framework bench serve`."""

from __future__ import annotations

import math
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from dataclasses import dataclass
from typing import Final

from framework.cli.output import add_json_flag
from hookspecs.errors import ConfigError

__all__ = ["REQUESTS", "Rate", "add_arguments", "check"]

REQUESTS: Final = 200
"""Without --requests and --duration."""


@dataclass(frozen=True)
class Rate:
    """Of an open loop."""

    value: float
    """Requests/s, or a share of what a closed loop completes."""
    of_capacity: bool = False


def add_arguments(parser: ArgumentParser) -> None:
    """Those of `framework bench serve`."""
    server = parser.add_argument_group("server")
    server.add_argument(
        "--url", "--base-url", default="http://127.0.0.1:8000", help="default %(default)s"
    )
    server.add_argument("--model", metavar="NAME", help="default: the first of /v1/models")
    server.add_argument("--api-key", metavar="KEY", help="sent as a bearer token")
    server.add_argument(
        "--endpoint",
        choices=("completions", "chat"),
        default="completions",
        help="default %(default)s",
    )
    server.add_argument(
        "--timeout", type=_positive_number, default=300, metavar="S",
        help="seconds without a byte from the server after which a request has failed; the list "
        "of models must be there within as many; default %(default)s",
    )  # fmt: skip
    load = parser.add_argument_group(
        "load", "A closed loop sends a client's next request when it has the answer; an open loop "
        "sends whatever is answered, and counts latency from the scheduled arrival."
    )  # fmt: skip
    load.add_argument(
        "--concurrency", type=_positive, default=16, metavar="N",
        help="clients of a closed loop, and of the warm-up; default %(default)s",
    )  # fmt: skip
    load.add_argument(
        "--rate", type=_rates, default=(), metavar="R[,R…]",
        help="open loops, one after the other: requests/s, or as `80%%` a share of what a closed "
        "loop of --concurrency completes, which then comes first; Poisson arrivals",
    )  # fmt: skip
    load.add_argument(
        "--max-concurrency", type=_positive, metavar="N",
        help="open loop: requests at the server at once; others wait, and that counts",
    )  # fmt: skip
    load.add_argument(
        "--requests", type=_positive, metavar="N",
        help=f"how many to send in each loop; default {REQUESTS} without --duration",
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
        help="of prompts, arrivals and sampling; default %(default)s. A server that has seen it "
        "has the prompts in its prefix cache: give each run its own",
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
        "--long-prompts", type=_share, default=0.0, metavar="SHARE",
        help="how many of the prompts, from 0 to 1, are long ones; they are reported apart",
    )  # fmt: skip
    asked.add_argument(
        "--long-tokens", type=_positive, default=1024, metavar="N",
        help="words or ids of a long prompt; default %(default)s",
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
    good = parser.add_argument_group(
        "goodput", "What an answer must keep to, to count in the goodput."
    )
    good.add_argument(
        "--good-ttft", type=_positive_number, metavar="MS", help="time to its first token"
    )
    good.add_argument(
        "--good-itl", type=_positive_number, metavar="MS", help="its mean inter-token latency"
    )
    good.add_argument("--good-e2e", type=_positive_number, metavar="MS", help="time to its end")
    add_json_flag(parser)


def check(arguments: Namespace) -> None:
    """ConfigError for arguments that contradict each other."""
    if arguments.max_concurrency is not None and not arguments.rate:
        raise ConfigError("--max-concurrency is of an open loop; give --rate, or --concurrency")
    chat = arguments.endpoint == "chat"
    if chat and arguments.prompts == "tokens":
        raise ConfigError("--prompts tokens: a chat has no token ids; use --endpoint completions")
    if arguments.dataset is not None and arguments.long_prompts:
        raise ConfigError("--long-prompts is of made prompts; leave --dataset out")
    if arguments.no_stream:
        for name in ("chunk_usage", "good_ttft", "good_itl"):
            if getattr(arguments, name):
                option = name.replace("_", "-")
                raise ConfigError(f"--{option} is of streams; leave --no-stream out")


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


def _share(text: str) -> float:
    value = _real(text)
    if not 0 <= value <= 1:
        raise ArgumentTypeError(f"{text!r} is no number from 0 to 1")
    return value


def _rates(text: str) -> tuple[Rate, ...]:
    return tuple(_rate(each) for each in text.split(","))


def _rate(text: str) -> Rate:
    number = text.removesuffix("%")
    if number == text:
        return Rate(_positive_number(text))
    return Rate(_positive_number(number) / 100, of_capacity=True)


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
