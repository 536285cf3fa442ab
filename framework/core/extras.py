"""What can make a bundle of outputs too large, or impossible, to send."""

from __future__ import annotations

import msgspec
import numpy as np

from framework.process.remote_error import printable
from hookspecs.types.outputs import EngineCoreOutputs
from hookspecs.types.request import FinishReason

__all__ = ["without_extras"]


def without_extras(outputs: EngineCoreOutputs, why: str) -> tuple[EngineCoreOutputs, list[int]]:
    """The bundle without what requests ask for beyond tokens (log-probabilities, vectors), and
    with error texts that can be sent. Those that asked end with an error; their handles, since
    the engine core must end them, too."""
    rows = {*outputs.prompt_logprobs, *outputs.pooled}
    if outputs.logprob_rows is not None:
        rows.update(outputs.logprob_rows.tolist())
    codes = outputs.finish_codes.copy()
    codes[list(rows)] = FinishReason.ERROR
    errors = {row: printable(text) for row, text in outputs.errors.items()}
    for row in rows:
        errors[row] = (
            f"its output can not be sent: {why}. Ask for less in one request (logprobs, "
            "prompt_logprobs), or raise engine.max_message_bytes"
        )
    return (
        msgspec.structs.replace(
            outputs,
            finish_codes=codes,
            errors=errors,
            logprobs=None,
            logprob_rows=None,
            prompt_logprobs={},
            pooled={},
        ),
        outputs.handles[np.array(sorted(rows), np.int64)].tolist(),
    )
