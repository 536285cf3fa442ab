"""What is asked: bodies of requests, each a function of its number and the seed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

import msgspec

from hookspecs.errors import ConfigError

__all__ = ["Chosen", "Fields", "chosen", "dataset_fields", "mixed_fields", "random_fields"]

Fields: TypeAlias = Callable[[int], dict[str, Any]]
"""`prompt` or `messages` of request number i."""
Chosen: TypeAlias = Callable[[int], bool]
"""Whether request number i is one of some."""

_COMMON: Final = (
    "time year people way day man thing woman life child world school state family student group "
    "country problem hand part place case week company system program question work government "
    "number night point home water room mother area money story fact month lot right study book "
    "eye job word business issue side kind head house service friend father power hour game line"
)
WORDS: Final = tuple(_COMMON.split())
"""Common words, which most tokenizers have as one token each."""
TOKEN_IDS: Final = range(10, 1000)
"""Ids that every vocabulary has, without the special tokens that are often first."""


def random_fields(
    lengths: range, *, token_ids: bool, chat: bool, seed: int, vocabulary: range = TOKEN_IDS
) -> Fields:
    """Random words, or token ids, as many as one of `lengths` by equal chance."""

    def fields(number: int) -> dict[str, Any]:
        draw = Random(f"{seed} {number}")  # of an integer, its sign would not count
        count = draw.choice(lengths)
        if token_ids:
            return {"prompt": draw.choices(vocabulary, k=count)}
        return _text_fields(" ".join(draw.choices(WORDS, k=count)), chat)

    return fields


def chosen(share: float, seed: int) -> Chosen:
    """Each with the chance `share`."""
    return lambda number: Random(f"{seed} {number} chosen").random() < share


def mixed_fields(fields: Fields, others: Fields, is_other: Chosen) -> Fields:
    """`others` of those that are chosen, `fields` of the rest."""
    return lambda number: (others if is_other(number) else fields)(number)


def dataset_fields(path: str, *, chat: bool) -> Fields:
    """The lines of a file in their order, from the first again after the last. A line is a JSON
    object with `prompt` (text or token ids) or `messages`; other members are ignored.

    ConfigError for a file that can not be read, and for lines that the endpoint has no use for.
    """
    try:
        lines = Path(path).expanduser().read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"--dataset: {error}") from error
    read = [_line(f"{path}:{at}", line, chat) for at, line in enumerate(lines, 1) if line.strip()]
    if not read:
        raise ConfigError(f"--dataset {path} has no lines; needed is a JSON object a line")
    return lambda number: read[number % len(read)]


def _line(where: str, line: bytes, chat: bool) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"--dataset: {where} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"--dataset: {where} is no JSON object")
    prompt, messages = value.get("prompt"), value.get("messages")
    if chat and isinstance(messages, list):
        return {"messages": messages}
    if isinstance(prompt, str) and prompt:
        return _text_fields(prompt, chat)
    if not chat and isinstance(prompt, list) and prompt:
        return {"prompt": prompt}
    needed = "`messages`, or `prompt` as text" if chat else "`prompt`, as text or token ids"
    raise ConfigError(f"--dataset: {where} has not what the endpoint needs: {needed}")


def _text_fields(text: str, chat: bool) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]} if chat else {"prompt": text}
