"""A request's script: `sampling_params.extensions["scripted"]`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from hookspecs.errors import InvalidRequestError
from hookspecs.types.columns import Float32Column
from hookspecs.types.sampling import SamplingParams

__all__ = ["EXTENSION", "ScriptedRequest", "parse_script"]

EXTENSION = "scripted"
Output = Annotated[int, Meta(ge=0)]
"""Index of an output token, from 0."""


class ScriptedRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a request outputs; without `tokens` and `logits`, what the default rule says."""

    tokens: list[int] | None = None
    """The output tokens; after them the end token."""
    logits: list[list[float]] | None = None
    """Row i is sampled from for output i; the last row repeats. Excludes `tokens`."""
    eos_after: Output | None = None
    """The end token comes after so many tokens."""
    fail_at: Output | None = None
    """This output fails, and so its request."""
    raise_at: Output | None = None
    """The worker raises RuntimeError instead of this output."""

    def token(self, output: int, eos_token_id: int) -> int | None:
        """The scripted token of an output; None if the script has none."""
        if self.eos_after is not None and output >= self.eos_after:
            return eos_token_id
        if self.tokens is None:
            return None
        return self.tokens[output] if output < len(self.tokens) else eos_token_id

    def logits_row(self, output: int) -> Float32Column | None:
        """float32[vocab] for an output, or None."""
        if self.logits is None or (self.eos_after is not None and output >= self.eos_after):
            return None
        return np.array(self.logits[min(output, len(self.logits) - 1)], dtype=np.float32)


def parse_script(params: SamplingParams, vocab_size: int) -> ScriptedRequest | None:
    """The script of a request, if it has one. InvalidRequestError says what is wrong with it."""
    value: Any = params.extensions.get(EXTENSION)
    if value is None:
        return None
    try:
        script = msgspec.convert(value, ScriptedRequest)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from error
    if script.tokens is not None and script.logits is not None:
        raise _invalid("tokens and logits exclude each other")
    bad = [token for token in script.tokens or () if not 0 <= token < vocab_size]
    if bad:
        raise _invalid(f"token id {bad[0]} is not between 0 and {vocab_size - 1}")
    if script.logits is not None:
        widths = {len(row) for row in script.logits}
        if widths != {vocab_size}:
            raise _invalid(
                f"logits has rows of {sorted(widths)} numbers; needed is at least one row, of "
                f"{vocab_size} (option vocab_size)"
            )
    return script


def _invalid(reason: str) -> InvalidRequestError:
    name = f"extensions.{EXTENSION}"
    return InvalidRequestError(f"{name}: {reason}", param=name)
