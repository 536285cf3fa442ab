"""Attention as it is defined."""

from __future__ import annotations

import random

from framework.conformance.suites.attention_backend.base import (
    AttentionBackendPart,
    Make,
    chunk_and_decode,
    prefill,
    served,
)
from framework.conformance.worlds.paged_rows import Part, Shape
from framework.conformance.worlds.workload import seeds

__all__ = ["Definition"]

HEAD_SIZES = (16, 32, 64, 80, 96, 128)
BLOCK_SIZES = (1, 4, 16, 32)


class Definition(AttentionBackendPart):
    """Rows get what the definition gives in float64."""

    def test_a_prompt_in_one_chunk(self, make: Make) -> None:
        """Requires nothing.
        Does: computes prompts of 1 to 40 tokens, each in one step.
        Must: give what attention is by its definition: each token sees itself and those before.
        """
        rows = make()
        for length in (1, 2, 3, 4, 5, 15, 16, 17, 40):
            row = rows.add(length)
            rows.step([(row, length)], f"a prompt of {length} tokens in one chunk")
            rows.release(row)

    def test_a_prompt_in_several_chunks(self, make: Make) -> None:
        """Requires nothing.
        Does: computes prompts in chunks that end within, at and behind the ends of blocks.
        Must: let the tokens of a chunk see those of the chunks before.
        """
        rows = make()
        size = rows.shape.block_size
        for chunk in sorted({1, 2, size - 1, size, size + 1, 2 * size + 3} - {0}):
            row = rows.add(3 * size + 2)
            while row.done < len(row.key):
                count = min(chunk, len(row.key) - row.done)
                rows.step([(row, count)], f"the next {count} tokens of a prompt, after {row.done}")
            rows.release(row)

    def test_decodes(self, make: Make) -> None:
        """Requires nothing.
        Does: computes single tokens of many rows, whose lengths are 1, a block, and around.
        Must: see exactly the tokens of each row, whatever the longest one is.
        """
        rows = make()
        size = rows.shape.block_size
        lengths = sorted({1, 2, size - 1, size, size + 1, 2 * size, 2 * size + 1, 3 * size + 2})
        batch = [rows.add(length + 3) for length in lengths if length]
        for row in batch:
            if len(row.key) > 4:
                rows.step([(row, len(row.key) - 4)], "a prompt before decodes")
        for step in range(4):
            rows.step([(row, 1) for row in batch], f"decode number {step} of {len(batch)} rows")

    def test_mixed_batches(self, make: Make, seed: int) -> None:
        """Requires nothing.
        Does: computes random batches of chunks and decodes, of random sizes and heads.
        Must: give what each row gives by the definition, wherever it stands in the batch.
        """
        shapes = [_random_shape(number) for number in seeds(seed, 12)]
        for rows in served(make, shapes):
            for batch in range(2):
                rng = random.Random(rows.shape.size * 31 + batch)
                taken = [(rows.add(rng.randint(1, 40)), rng) for _ in range(rng.randint(2, 5))]
                prefill(rows, [(row, rng.randrange(len(row.key))) for row, rng in taken])
                ends = [(row, rng.choice((1, len(row.key) - row.done))) for row, rng in taken]
                rows.step(ends, f"a mixed batch of {len(ends)} rows")
                for row, _ in taken:
                    rows.release(row)

    def test_query_heads_share_keys(self, make: Make) -> None:
        """Requires nothing.
        Does: computes a chunk and a decode for 1, 2, 4 and 7 query heads a kv head.
        Must: let query head h see kv head h // (heads / kv heads).
        """
        ratios = [(1, 1), (4, 4), (4, 2), (8, 2), (8, 1), (7, 1), (14, 2)]
        shapes = [Shape(heads=heads, kv_heads=kv_heads) for heads, kv_heads in ratios]
        for rows in served(make, shapes):
            chunk_and_decode(rows)

    def test_sizes(self, make: Make) -> None:
        """Requires nothing.
        Does: computes a chunk and a decode for head sizes from 16 to 128, block sizes 1 to 32.
        Must: give the definition's result, or refuse the size with UnsupportedModelError.
        """
        shapes = [Shape(size=size) for size in HEAD_SIZES]
        shapes += [Shape(block_size=size) for size in BLOCK_SIZES]
        for rows in served(make, shapes):
            chunk_and_decode(rows)

    def test_scale(self, make: Make) -> None:
        """Requires nothing.
        Does: computes with scales that are not 1 / sqrt(head size).
        Must: multiply the scores by the scale that is given.
        """
        for scale in (0.05, 1.0):
            shape = make().shape._replace(scale=scale)
            chunk_and_decode(make(shape))

    def test_long_rows(self, make: Make) -> None:
        """Requires nothing.
        Does: computes a chunk of 150 tokens behind 700, beside a decode behind 1,100.
        Must: give the definition's result for rows of many blocks too.
        """
        shape = make().shape._replace(heads=2, kv_heads=1)
        rows = make(shape, num_blocks=2100 // shape.block_size + 4)
        chunk, decode = rows.add(850), rows.add(1101)
        parts = [Part(chunk, 0, 700), Part(decode, 0, 1100)]
        rows.write(parts, rows.metadata(parts))
        chunk.done, decode.done = 700, 1100
        rows.step([(chunk, 150), (decode, 1)], "long rows")

    def test_large_scores(self, make: Make) -> None:
        """Requires nothing.
        Does: computes with queries so large that exp of a score overflows.
        Must: give the definition's result, which is finite.
        """
        rows = make(make().shape._replace(loud=256.0))
        chunk_and_decode(rows)


def _random_shape(number: int) -> Shape:
    rng = random.Random(number)
    kv_heads = rng.choice((1, 2, 3))
    return Shape(
        heads=kv_heads * rng.choice((1, 2, 4)),
        kv_heads=kv_heads,
        size=rng.choice(HEAD_SIZES),
        block_size=rng.choice(BLOCK_SIZES),
    )
