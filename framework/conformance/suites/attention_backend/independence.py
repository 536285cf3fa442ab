"""What results must not depend on."""

from __future__ import annotations

import random

import torch

from framework.conformance.subject import Subject
from framework.conformance.suites.attention_backend.base import (
    AttentionBackendPart,
    Make,
    prefill,
    served,
)
from framework.conformance.worlds.paged_rows import Row
from hookspecs.contracts.attention import AttentionCapability

__all__ = ["Independence"]


class Independence(AttentionBackendPart):
    """Rows, steps, layers and objects share nothing."""

    def test_blocks_of_others_are_not_read(self, make: Make, seed: int) -> None:
        """Requires nothing.
        Does: serves rows that come and go, in blocks that still hold what was there before, and
        NaN where a request had gone wrong.
        Must: read the tokens of each row and nothing else: not even NaN reaches other rows.
        """
        rng = random.Random(seed)
        rows = make(num_blocks=40)
        running: list[Row] = []
        for step in range(20):
            while len(running) < 3:
                running.append(rows.add(rng.randint(2, 3 * rows.shape.block_size)))
            counts = [
                (row, rng.choice((1, rng.randint(1, len(row.key) - row.done)))) for row in running
            ]
            rng.shuffle(counts)
            rows.step(counts, f"step {step} of a workload")
            for row in [row for row in running if row.done == len(row.key)]:
                running.remove(row)
                if rng.random() < 0.5:
                    rows.poison(row.blocks)
                rows.release(row)

    def test_a_row_of_nan_spoils_no_other(self, make: Make) -> None:
        """Requires nothing.
        Does: puts a row of NaN first, last and between others, as a chunk and as a decode.
        Must: give the others what they get without it.
        """
        for place in range(3):
            for length in (1, 6):
                rows = make(salt=place)
                batch = [rows.add(12), rows.add(9)]
                prefill(rows, [(batch[0], 11), (batch[1], 4)])
                spoiled = rows.add(length)
                for tensor in (spoiled.query, spoiled.key, spoiled.value):
                    tensor.fill_(torch.nan)
                counts = [(batch[0], 1), (batch[1], 5)]
                counts.insert(place, (spoiled, length))
                parts = rows.next_parts(counts)
                metadata = rows.metadata(parts)
                rows.write(parts, metadata)
                out = rows.forward(parts, metadata)
                start = sum(part.end - part.begin for part in parts[:place])
                kept = torch.cat([out[:start], out[start + length :]])
                others = [part for part in parts if part.row is not spoiled]
                rows.check(others, kept, f"beside a row of NaN with {length} tokens")

    def test_steps_share_nothing(self, make: Make) -> None:
        """Requires nothing.
        Does: computes steps that look alike, but whose rows have other blocks and lengths.
        Must: derive everything from the metadata of the step.
        """
        rows = make()
        pairs = [
            (rows.add(12), rows.add(9)),
            (rows.add(9), rows.add(12)),
            (rows.add(12), rows.add(9)),
        ]
        for first, second in pairs:
            prefill(rows, [(first, len(first.key) - 3), (second, len(second.key) - 3)])
        for _ in range(3):
            for number, pair in enumerate(pairs):
                rows.step([(row, 1) for row in pair], f"decode of pair {number}")

    def test_layers_share_a_step(self, make: Make, subject: Subject) -> None:
        """Requires nothing.
        Does: uses one metadata for several layers, with buffers, heads, scales and, where that is
        declared, windows of their own, by turns.
        Must: keep in `metadata.cache` what holds for all of them, and nothing of one layer.
        """
        windows: list[int | None] = [None, None, None]
        if AttentionCapability.SLIDING_WINDOW in subject.capabilities:
            windows = [None, 3, 7]
        base = make()
        shapes = [
            base.shape._replace(heads=heads, window=window, scale=scale)
            for heads, window, scale in zip((4, 4, 8), windows, (0.2, 0.3, 0.4), strict=True)
        ]
        layers = []
        for salt, shape in enumerate(shapes):
            layer = make(shape, salt=salt)
            layer.backend, layer.free = base.backend, list(base.free)
            layer.cache = base.backend.allocate(
                layer.num_blocks, shape.kv_heads, shape.size, shape.dtype
            )
            layers.append(layer)
        batches = [[layer.add(11), layer.add(8)] for layer in layers]
        for counts in ((7, 7), (4, 1)):
            steps = [
                layer.next_parts(list(zip(rows, counts, strict=True)))
                for layer, rows in zip(layers, batches, strict=True)
            ]
            metadata = layers[0].metadata(steps[0])
            for layer, parts in zip(layers, steps, strict=True):
                layer.write(parts, metadata)
                out = layer.forward(parts, metadata)
                layer.check(parts, out, "layers with one metadata")

    def test_objects_share_nothing(self, make: Make) -> None:
        """Requires nothing.
        Does: lets two objects of the backend, with other block sizes, compute by turns.
        Must: keep what they know in themselves.
        """
        shapes = [make().shape, make().shape]
        shapes[1] = shapes[1]._replace(block_size=shapes[0].block_size * 2)
        pair = list(served(make, shapes))
        batches = [[rows.add(12), rows.add(7)] for rows in pair]
        for counts in ((9, 5), (1, 1), (1, 1)):
            for rows, batch in zip(pair, batches, strict=True):
                rows.step(list(zip(batch, counts, strict=True)), "two objects by turns")

    def test_the_order_of_rows(self, make: Make) -> None:
        """Requires nothing.
        Does: computes one batch in several orders of its rows.
        Must: give each row the same, up to rounding.
        """
        rows = make()
        batch = [rows.add(length) for length in (3, 17, 9, 12)]
        prefill(rows, [(batch[1], 16), (batch[3], 8)])
        parts = rows.next_parts([(row, len(row.key) - row.done) for row in batch])
        rows.write(parts, rows.metadata(parts))
        for shift in range(len(parts)):
            turned = parts[shift:] + parts[:shift]
            out = rows.forward(turned, rows.metadata(turned))
            rows.check(turned, out, f"rows in another order (by {shift})")
