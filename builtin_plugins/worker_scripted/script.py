"""A request's script at work."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from builtin_plugins.worker_scripted.request import ScriptedRequest
from hookspecs.errors import InvalidRequestError
from hookspecs.types.columns import Float32Column
from hookspecs.types.sampling import SamplingParams

__all__ = ["EXTENSION", "Script", "parse_script"]

EXTENSION = "scripted"


class Script:
    """What a request outputs, output by output."""

    def __init__(self, request: ScriptedRequest) -> None:
        self.fail_at = request.fail_at
        self.raise_at = request.raise_at
        self.has_logits = request.logits is not None
        self._request = request

    def token(self, output: int, eos_token_id: int) -> int | None:
        """The scripted token of an output; None if the script has none."""
        if self._ended(output):
            return eos_token_id
        tokens = self._request.tokens
        if tokens is None:
            return None
        return tokens[output] if output < len(tokens) else eos_token_id

    def logits_row(self, output: int) -> Float32Column | None:
        """float32[vocab] for an output, or None."""
        rows = self._request.logits
        if rows is None or self._ended(output):
            return None
        return np.array(rows[min(output, len(rows) - 1)], dtype=np.float32)

    def _ended(self, output: int) -> bool:
        end = self._request.eos_after
        return end is not None and output >= end


def parse_script(params: SamplingParams, vocab_size: int) -> Script | None:
    """The script of a request, if it has one. The front end has checked it but for what depends
    on the vocabulary: InvalidRequestError says what is wrong there."""
    value: Any = params.extensions.get(EXTENSION)
    if value is None:
        return None
    script = msgspec.convert(value, ScriptedRequest)
    bad = [token for token in script.tokens or () if not 0 <= token < vocab_size]
    if bad:
        raise _invalid(f"token id {bad[0]} is not between 0 and {vocab_size - 1}")
    widths = {len(row) for row in script.logits or ()}
    if widths - {vocab_size}:
        raise _invalid(
            f"logits has rows of {sorted(widths)} numbers; needed are {vocab_size} in each "
            "(the vocabulary)"
        )
    return Script(script)


def _invalid(reason: str) -> InvalidRequestError:
    name = f"extensions.{EXTENSION}"
    return InvalidRequestError(f"{name}: {reason}", param=name)
