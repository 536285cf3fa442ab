"""Windows, caps, sinks and types of numbers."""

from __future__ import annotations

from typing import Any

import torch

from framework.conformance.base import lacking, requires
from framework.conformance.subject import Subject
from framework.conformance.suites.attention_backend.base import (
    AttentionBackendPart,
    Make,
    chunk_and_decode,
    launch,
    prefill,
    served,
)
from hookspecs.contracts.attention import AttentionCapability
from hookspecs.errors import UnsupportedModelError

__all__ = ["Capabilities"]


class Capabilities(AttentionBackendPart):
    """What is declared is computed, what is not is refused."""

    @requires(AttentionCapability.SLIDING_WINDOW)
    def test_sliding_window(self, make: Make) -> None:
        """Requires sliding_window.
        Does: computes chunks and decodes with windows of one token up to more than there are.
        Must: let a token see itself and the `sliding_window - 1` tokens before it.
        """
        for window in (1, 2, 5, 16, 17, 100):
            rows = make(make().shape._replace(window=window))
            first, second = rows.add(45), rows.add(23)
            for counts in ((7, 1), (20, 9), (1, 1), (1, 5), (16, 7)):
                batch = list(zip((first, second), counts, strict=True))
                rows.step(batch, f"a window of {window}")

    @requires(AttentionCapability.SLIDING_WINDOW)
    def test_blocks_that_left_the_window(self, make: Make) -> None:
        """Requires sliding_window.
        Does: gives back blocks before the window, fills them with NaN and puts the null block
        in their place.
        Must: not read them.
        """
        shape = make().shape
        rows = make(shape._replace(window=shape.block_size + 1))
        first, second = rows.add(5 * shape.block_size + 2), rows.add(4 * shape.block_size)
        prefill(rows, [(first, 3 * shape.block_size), (second, 2 * shape.block_size + 1)])
        for row in (first, second):
            gone = (row.done - shape.block_size) // shape.block_size
            rows.poison(row.blocks[:gone])
        rows.step([(first, 1), (second, shape.block_size)], "blocks gone", cut=True)
        rows.step([(first, shape.block_size + 1), (second, 1)], "blocks gone", cut=True)

    @requires(AttentionCapability.SOFT_CAP)
    def test_soft_cap(self, make: Make) -> None:
        """Requires soft_cap.
        Does: computes with a cap below the largest scores, and one above.
        Must: use cap * tanh(scaled score / cap), before what a token may not see is left out.
        """
        for cap in (0.5, 2.0, 50.0):
            chunk_and_decode(make(make().shape._replace(soft_cap=cap, loud=3.0)))

    @requires(AttentionCapability.SINKS)
    def test_sinks(self, make: Make) -> None:
        """Requires sinks.
        Does: computes with a sink for each query head.
        Must: let each take its share of the probability, as one more key without a value does.
        """
        for loud in (1.0, 30.0):
            chunk_and_decode(make(make().shape._replace(sinks=True, loud=loud)))

    @requires(
        AttentionCapability.SLIDING_WINDOW, AttentionCapability.SOFT_CAP, AttentionCapability.SINKS
    )
    def test_window_cap_and_sinks_together(self, make: Make) -> None:
        """Requires sliding_window, soft_cap and sinks.
        Does: computes with all of them in one layer.
        Must: cap the scores, leave out what is not seen, and add the sink, in that order.
        """
        shape = make().shape._replace(window=5, soft_cap=2.0, sinks=True)
        for rows in served(make, [shape, shape._replace(heads=6, kv_heads=3)]):
            chunk_and_decode(rows)

    @requires(AttentionCapability.BFLOAT16)
    def test_bfloat16(self, make: Make) -> None:
        """Requires bfloat16.
        Does: computes mixed batches of bfloat16 tensors, and a row of 900 tokens.
        Must: be off by rounding to bfloat16 only: sums and softmax are of float32.
        """
        shape = make().shape._replace(dtype=torch.bfloat16)
        chunk_and_decode(make(shape))
        rows = make(shape._replace(shift=3.0), num_blocks=900 // shape.block_size + 3)
        row = rows.add(900)
        prefill(rows, [(row, 898)])
        rows.step([(row, 2)], "a long row of bfloat16")

    @requires(AttentionCapability.FLOAT16)
    def test_float16(self, make: Make) -> None:
        """Requires float16.
        Does: computes mixed batches of float16 tensors, also with scores that overflow float16
        before they are scaled.
        Must: be off by rounding to float16 only: sums and softmax are of float32.
        """
        shape = make().shape._replace(dtype=torch.float16)
        chunk_and_decode(make(shape))
        chunk_and_decode(make(shape._replace(loud=4096.0)))

    @lacking(AttentionCapability.SLIDING_WINDOW)
    def test_undeclared_sliding_window_is_refused(self, subject: Subject) -> None:
        """Requires a backend that does not declare sliding_window.
        Does: starts an engine with a model that needs it.
        Must: be refused with UnsupportedModelError.
        """
        _refused(subject, {"sliding_window": 6})

    @lacking(AttentionCapability.SOFT_CAP)
    def test_undeclared_soft_cap_is_refused(self, subject: Subject) -> None:
        """Requires a backend that does not declare soft_cap.
        Does: starts an engine with a model that needs it.
        Must: be refused with UnsupportedModelError.
        """
        _refused(subject, {"soft_cap": 2.0})

    @lacking(AttentionCapability.SINKS)
    def test_undeclared_sinks_are_refused(self, subject: Subject) -> None:
        """Requires a backend that does not declare sinks.
        Does: starts an engine with a model that needs them.
        Must: be refused with UnsupportedModelError.
        """
        _refused(subject, {"sinks": True})

    @lacking(AttentionCapability.BFLOAT16)
    def test_undeclared_bfloat16_is_refused(self, subject: Subject) -> None:
        """Requires a backend that does not declare bfloat16.
        Does: starts an engine with a model of that type.
        Must: be refused with UnsupportedModelError.
        """
        _refused(subject, {}, dtype="bfloat16")

    @lacking(AttentionCapability.FLOAT16)
    def test_undeclared_float16_is_refused(self, subject: Subject) -> None:
        """Requires a backend that does not declare float16.
        Does: starts an engine with a model of that type.
        Must: be refused with UnsupportedModelError.
        """
        _refused(subject, {}, dtype="float16")


def _refused(subject: Subject, traits: dict[str, Any], dtype: str = "float32") -> None:
    try:
        engine = launch(subject, traits, model={"dtype": dtype})
    except UnsupportedModelError:
        return
    engine.shutdown()
    raise AssertionError(
        f"an engine started with a model that needs {traits or dtype}, which is not declared"
    )
