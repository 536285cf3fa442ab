"""JSON bodies, read strictly (RFC 8259, with the choices of RFC 7493, I-JSON).

What JSON leaves open is refused instead of guessed: duplicate keys, NaN and infinities, halves of
surrogate pairs, encodings other than UTF-8, integers and nesting without bound. Front-end process,
its event loop: no body may hold up other requests, so values are counted before they are made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import islice
from typing import Any, Generic, TypeVar

import msgspec

from builtin_plugins.openai_server.errors import ApiError
from builtin_plugins.openai_server.limits import JSON_DEPTH, JSON_ITEMS, JSON_VALUES, limit_error

__all__ = ["BodyDecoder", "distinct"]

T = TypeVar("T")

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""A string, which may lack its end: never tried twice at one place, whatever the bytes."""
_VALUE = re.compile(_STRING.pattern + rb"|[\[{]", re.DOTALL)
"""A string, or the beginning of an array or object."""
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_TO_SQUARE = bytes.maketrans(b"{}", b"[]")
_TO_ZERO = bytes.maketrans(b"123456789", b"0" * 9)
_PATH = re.compile(r" - at `(?:key in )?\$(.*)`$", re.DOTALL)
_UNKNOWN = "Object contains unknown field"
_FIELD = re.compile(r"Object (?:missing required|contains unknown) field `(.*)`", re.DOTALL)


class BodyDecoder(Generic[T]):
    """Decodes bodies of one type."""

    def __init__(self, kind: type[T]) -> None:
        self._decoder = msgspec.json.Decoder(kind)
        fields = msgspec.structs.fields(kind) if issubclass(kind, msgspec.Struct) else ()
        self._known = {field.encode_name for field in fields}

    def decode(self, data: bytes) -> T:
        """The checked body. A field that is unknown and null asks for nothing, and counts as left
        out. ApiError with status 400; its `param` is the place in the JSON."""
        _check(data)
        try:
            try:
                return self._decoder.decode(data)
            except msgspec.ValidationError as error:
                if not str(error).startswith(_UNKNOWN):
                    raise
                return self._decoder.decode(self._without_unknown_nulls(data))
        except msgspec.ValidationError as error:
            message, param = _place(str(error))
            raise ApiError(400, message, param=param, code="invalid_value") from None
        except msgspec.DecodeError:
            # All else that is no JSON was found before.
            raise _not_json("a string has an escape that is half of a surrogate pair") from None

    def _without_unknown_nulls(self, data: bytes) -> bytes:
        members = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        kept = [
            msgspec.json.encode(name) + b":" + bytes(value)
            for name, value in members.items()
            if name in self._known or bytes(value) != b"null"
        ]
        return b"{%b}" % b",".join(kept)


def _check(data: bytes) -> None:
    """What msgspec accepts and this server does not."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_json(f"byte {error.start} is not UTF-8") from None
    _check_size(data)
    # A hook in Python is slow, and bodies may be lists of token ids. Nobody wants the numbers made
    # here, so `len` stands for what makes them: it costs the least.
    parse_int = _bounded_int if b"0" * 19 in data.translate(_TO_ZERO) else len
    try:
        json.loads(
            text,
            object_pairs_hook=distinct,
            parse_constant=_no_constant,
            parse_int=parse_int,
            parse_float=len,
        )
    except json.JSONDecodeError as error:
        raise _not_json(f"{error.msg}, at character {error.pos}") from None
    except RecursionError:
        raise _too_deep() from None
    _check_depth(data)


def _check_size(data: bytes) -> None:
    """Characters are counted first, at the speed of bytes.count; only where they are many, it
    matters which of them are inside strings."""
    limit = JSON_VALUES.value
    many = data.count(b'"') + data.count(b"[") + data.count(b"{") > limit
    if many and sum(1 for _ in islice(_VALUE.finditer(data), limit + 1)) > limit:
        raise limit_error(JSON_VALUES.name, f"more than {limit}", limit)
    limit = JSON_ITEMS.value
    if data.count(b",") > limit and _STRING.sub(b"", data).count(b",") > limit:
        raise limit_error(JSON_ITEMS.name, f"more than {limit}", limit)


def _check_depth(data: bytes) -> None:
    """Every round takes away the innermost pairs, at the speed of bytes.replace."""
    if data.count(b"[") + data.count(b"{") <= JSON_DEPTH.value:
        return
    brackets = _STRING.sub(b"", data).translate(_TO_SQUARE, _NO_BRACKETS)
    for _ in range(JSON_DEPTH.value):
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            return
    raise _too_deep()


def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The members of an object. ApiError (400) that names the first key that comes again."""
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    twice = _first_repeated(key for key, _ in pairs)[:64]
    raise ApiError(
        400,
        f"the key {twice!a} occurs twice in one object; give it once",
        param=twice.encode(errors="replace").decode(),
        code="invalid_json",
    )


def _first_repeated(keys: Iterable[str]) -> str:
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            return key
        seen.add(key)
    raise ValueError("no key is repeated")


def _no_constant(name: str) -> Any:
    raise _not_json(f"{name} is not a number of JSON")


def _bounded_int(digits: str) -> None:
    if len(digits) < 19 or (len(digits) == 19 and digits[0] != "-"):
        return  # also without int(), which is slow
    if len(digits) > 20 or not (-(2**63) <= int(digits) < 2**64):
        raise _not_json(f"the integer {digits[:24]}… does not fit in 64 bits")


def _not_json(why: str) -> ApiError:
    return ApiError(400, f"the body is not valid JSON: {why}", code="invalid_json")


def _too_deep() -> ApiError:
    return limit_error(JSON_DEPTH.name, f"more than {JSON_DEPTH.value}", JSON_DEPTH.value)


def _place(message: str) -> tuple[str, str | None]:
    """msgspec's message, and the path at its end without its root: `$.stop[0]` is `stop[0]`."""
    found = _PATH.search(message)
    place = found.group(1).removeprefix(".")[:256] if found else ""
    said = message[: found.start()] if found else message
    shown = f"{said} in `{place}`" if place else said
    named = _FIELD.fullmatch(said)
    if named:
        place = f"{place}.{named.group(1)}".removeprefix(".")[:256]
    return shown, place or None
