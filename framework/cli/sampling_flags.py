"""Flags for the sampling parameters of `generate` and `chat`."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, Namespace
from typing import Any, Final

import msgspec
from msgspec import inspect

from framework.frontend.validation import validate_params
from hookspecs.types.sampling import SamplingLimits, SamplingParams

__all__ = ["add_sampling_flags", "check_sampling_flags", "sampling_params"]

FLAGS: Final = (
    "max_tokens",
    "min_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "ignore_eos",
)
"""Fields with one number, or a switch. The rest of SamplingParams is for programs."""


def add_sampling_flags(parser: ArgumentParser) -> None:
    """A flag for each field, with the description that the struct gives."""
    group = parser.add_argument_group("sampling")
    types = {field.name: field.type for field in msgspec.structs.fields(SamplingParams)}
    for name in FLAGS:
        flag = f"--{name.replace('_', '-')}"
        kind, text = _described(types[name])
        if isinstance(kind, inspect.BoolType):
            group.add_argument(flag, action="store_true", default=SUPPRESS, help=text)
        else:
            number = float if isinstance(kind, inspect.FloatType) else int
            group.add_argument(flag, type=number, metavar="N", default=SUPPRESS, help=text)
    group.add_argument(
        "--stop",
        action="append",
        metavar="TEXT",
        default=SUPPRESS,
        help="String that ends the output; repeatable.",
    )


def check_sampling_flags(arguments: Namespace) -> None:
    """InvalidRequestError for a flag that is wrong whatever the model: said before it is loaded."""
    params = sampling_params(arguments, SamplingParams(max_tokens=None))
    validate_params(params, limits=SamplingLimits(), vocab_size=1, has_tokenizer=True)


def sampling_params(
    arguments: Namespace, base: SamplingParams, *, max_tokens: int | None = None
) -> SamplingParams:
    """`base` with what the flags give; `max_tokens` if neither says how many.

    Bounds that depend on the model are checked by the engine.
    """
    given = {name: value for name, value in vars(arguments).items() if name in (*FLAGS, "stop")}
    if base.max_tokens is None:
        given.setdefault("max_tokens", max_tokens)
    return msgspec.structs.replace(base, **given)


def _described(annotation: Any) -> tuple[inspect.Type, str]:
    kind, text = inspect.type_info(annotation), ""
    if isinstance(kind, inspect.Metadata):
        text = str((kind.extra_json_schema or {}).get("description", ""))
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        kind = next(member for member in kind.types if not isinstance(member, inspect.NoneType))
    return kind, text.replace("%", "%%")
