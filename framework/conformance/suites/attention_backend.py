"""Suite of attention backends, against attention by its definition in float64."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest
import torch

from framework.conformance.base import lacking, requires
from framework.conformance.subject import Subject, merged
from framework.conformance.worlds.checkpoint import tiny_checkpoint
from framework.conformance.worlds.engines import greedy
from framework.conformance.worlds.makers import PartMaker
from framework.conformance.worlds.paged_rows import PagedRows, Part, Row, Shape
from framework.conformance.worlds.tensors import TensorConformance
from framework.conformance.worlds.tiny_llama import TinyModels, Traits, last_logits
from framework.conformance.worlds.workload import seeds
from hookspecs.contracts.attention import AttentionBackend, AttentionCapability
from hookspecs.errors import UnsupportedModelError

__all__ = ["AttentionBackendConformance"]

Make = Callable[..., PagedRows]
HEAD_SIZES = (16, 32, 64, 80, 96, 128)
BLOCK_SIZES = (1, 4, 16, 32)
LOGIT_MARGIN = 1e-3
"""How much less likely than the best a greedy token may be: float32 adds up in another order."""


class AttentionBackendConformance(TensorConformance):
    """Attention backends write keys and values where they belong, and read no others."""

    kind = "attention_backend"

    @pytest.fixture
    def make(self, subject: Subject, device: str, seed: int) -> Make:
        """Makes rows of a shape over a new backend. UnsupportedModelError if it refuses it."""
        maker, config = PartMaker(subject), subject.config()

        def rows(shape: Shape | None = None, *, salt: int = 0, **fields: Any) -> PagedRows:
            shape = shape or Shape(block_size=_block_size(maker, config, device))
            return PagedRows(
                _backend(maker, config, device, shape.block_size),
                shape,
                seed=seed * 1_000_003 + salt,
                device=device,
                **fields,
            )

        return rows

    # What attention is

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
        for rows in _served(make, shapes):
            for batch in range(2):
                rng = random.Random(rows.shape.size * 31 + batch)
                taken = [(rows.add(rng.randint(1, 40)), rng) for _ in range(rng.randint(2, 5))]
                _prefill(rows, [(row, rng.randrange(len(row.key))) for row, rng in taken])
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
        for rows in _served(make, shapes):
            _chunk_and_decode(rows)

    def test_sizes(self, make: Make) -> None:
        """Requires nothing.
        Does: computes a chunk and a decode for head sizes from 16 to 128, block sizes 1 to 32.
        Must: give the definition's result, or refuse the size with UnsupportedModelError.
        """
        shapes = [Shape(size=size) for size in HEAD_SIZES]
        shapes += [Shape(block_size=size) for size in BLOCK_SIZES]
        for rows in _served(make, shapes):
            _chunk_and_decode(rows)

    def test_scale(self, make: Make) -> None:
        """Requires nothing.
        Does: computes with scales that are not 1 / sqrt(head size).
        Must: multiply the scores by the scale that is given.
        """
        for scale in (0.05, 1.0):
            shape = make().shape._replace(scale=scale)
            _chunk_and_decode(make(shape))

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
        _chunk_and_decode(rows)

    # Capabilities

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
        _prefill(rows, [(first, 3 * shape.block_size), (second, 2 * shape.block_size + 1)])
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
            _chunk_and_decode(make(make().shape._replace(soft_cap=cap, loud=3.0)))

    @requires(AttentionCapability.SINKS)
    def test_sinks(self, make: Make) -> None:
        """Requires sinks.
        Does: computes with a sink for each query head.
        Must: let each take its share of the probability, as one more key without a value does.
        """
        for loud in (1.0, 30.0):
            _chunk_and_decode(make(make().shape._replace(sinks=True, loud=loud)))

    @requires(
        AttentionCapability.SLIDING_WINDOW, AttentionCapability.SOFT_CAP, AttentionCapability.SINKS
    )
    def test_window_cap_and_sinks_together(self, make: Make) -> None:
        """Requires sliding_window, soft_cap and sinks.
        Does: computes with all of them in one layer.
        Must: cap the scores, leave out what is not seen, and add the sink, in that order.
        """
        shape = make().shape._replace(window=5, soft_cap=2.0, sinks=True)
        for rows in _served(make, [shape, shape._replace(heads=6, kv_heads=3)]):
            _chunk_and_decode(rows)

    @requires(AttentionCapability.BFLOAT16)
    def test_bfloat16(self, make: Make) -> None:
        """Requires bfloat16.
        Does: computes mixed batches of bfloat16 tensors, and a row of 900 tokens.
        Must: be off by rounding to bfloat16 only: sums and softmax are of float32.
        """
        shape = make().shape._replace(dtype=torch.bfloat16)
        _chunk_and_decode(make(shape))
        rows = make(shape._replace(shift=3.0), num_blocks=900 // shape.block_size + 3)
        row = rows.add(900)
        _prefill(rows, [(row, 898)])
        rows.step([(row, 2)], "a long row of bfloat16")

    @requires(AttentionCapability.FLOAT16)
    def test_float16(self, make: Make) -> None:
        """Requires float16.
        Does: computes mixed batches of float16 tensors, also with scores that overflow float16
        before they are scaled.
        Must: be off by rounding to float16 only: sums and softmax are of float32.
        """
        shape = make().shape._replace(dtype=torch.float16)
        _chunk_and_decode(make(shape))
        _chunk_and_decode(make(shape._replace(loud=4096.0)))

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

    # The cache

    def test_a_new_buffer_is_zeroed(self, make: Make) -> None:
        """Requires nothing.
        Does: attends to tokens that nothing was written for, in new buffers.
        Must: give zero, since `allocate` gives zeroed keys and values.
        """
        for salt in range(3):
            rows = make(salt=salt, poison=False)
            parts = [Part(rows.add(9), 0, 9), Part(rows.add(6), 5, 6)]
            out = rows.forward(parts, rows.metadata(parts))
            assert not out.abs().max() > 0 and torch.isfinite(out).all(), (
                f"attention over an unwritten buffer gave {float(out.abs().max()):.3g}, not 0"
            )
            rows.poison(range(1, rows.num_blocks))  # what the next allocate may get back

    def test_write_changes_only_its_slots(self, make: Make) -> None:
        """Requires nothing.
        Does: lets rows grow by turns, in blocks that lie among each other's, and checks all rows
        after each.
        Must: leave every slot alone that is not in `slot_mapping`.
        """
        rows = make()
        size = rows.shape.block_size
        batch = [rows.add(2 * size + 3) for _ in range(4)]
        rows.step([(row, 2) for row in batch], "the first tokens")
        for turn, row in enumerate(batch * 2):
            parts = rows.next_parts([(row, size // 2 + 1 if turn < 4 else 1)])
            rows.write(parts, rows.metadata(parts))
            last = [Part(each, each.done - 1, each.done) for each in batch]
            out = rows.forward(last, rows.metadata(last))
            rows.check(last, out, f"after tokens of row {turn % 4} alone were written")

    def test_copied_out_is_what_was_written(self, make: Make) -> None:
        """Requires nothing.
        Does: copies blocks out, in an order of its own, after two rows were written.
        Must: give their keys and values exactly, and zero where nothing was written; or raise
        NotImplementedError.
        """
        rows = make(poison=False)
        size = rows.shape.block_size
        batch = [rows.add(2 * size), rows.add(size + 1)]
        parts = rows.next_parts([(row, len(row.key)) for row in batch])
        rows.write(parts, rows.metadata(parts))
        for row in reversed(batch):
            blocks = list(reversed(row.blocks))
            try:
                copied = rows.backend.copy_out(rows.cache, blocks)
            except NotImplementedError:
                return
            for name, got, put in zip(
                ("keys", "values"), copied, (row.key, row.value), strict=True
            ):
                shape = (len(blocks), size, rows.shape.kv_heads, rows.shape.size)
                assert tuple(got.shape) == shape, (
                    f"copy_out gave {name} {tuple(got.shape)}; {shape} were to come"
                )
                flat = got.detach().cpu().flip(0).flatten(0, 1)
                assert torch.equal(flat[: len(put)], put), f"copy_out gave other {name}"
                assert not flat[len(put) :].any(), f"{name} that nobody wrote are not zero"

    @requires(AttentionCapability.BFLOAT16)
    def test_a_cache_of_another_type(self, make: Make, device: str) -> None:
        """Requires bfloat16.
        Does: writes float32 keys and values into a bfloat16 buffer, as cache.kv_dtype asks.
        Must: round them, and answer a float32 query in float32.
        """
        rows = make(poison=False)
        shape = rows.shape
        rows.cache = rows.backend.allocate(
            rows.num_blocks, shape.kv_heads, shape.size, torch.bfloat16
        )
        row = rows.add(20)
        parts = rows.next_parts([(row, 20)])
        rows.write(parts, rows.metadata(parts))
        row.key, row.value = row.key.bfloat16().float(), row.value.bfloat16().float()
        out = rows.forward(parts, rows.metadata(parts))
        assert out.dtype == torch.float32, f"a float32 query was answered in {out.dtype}"
        expected = rows.expected(parts)
        error = float((out.double() - expected).abs().max())
        # The query may be rounded to bfloat16 too: scores of about 3 are off by 3 * 2**-9.
        assert error <= 0.1, f"a bfloat16 cache: off by {error:.2g} where rounding explains 0.1"

    # What it must not depend on

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
                _prefill(rows, [(batch[0], 11), (batch[1], 4)])
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
            _prefill(rows, [(first, len(first.key) - 3), (second, len(second.key) - 3)])
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
        pair = list(_served(make, shapes))
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
        _prefill(rows, [(batch[1], 16), (batch[3], 8)])
        parts = rows.next_parts([(row, len(row.key) - row.done) for row in batch])
        rows.write(parts, rows.metadata(parts))
        for shift in range(len(parts)):
            turned = parts[shift:] + parts[:shift]
            out = rows.forward(turned, rows.metadata(turned))
            rows.check(turned, out, f"rows in another order (by {shift})")

    # Tensors

    def test_arguments_are_left_alone(self, make: Make, subject: Subject) -> None:
        """Requires nothing.
        Does: compares query, key, value, sinks and metadata before and after write and forward.
        Must: change none of them, `metadata.cache` excepted.
        """
        shape = make().shape
        if AttentionCapability.SINKS in subject.capabilities:
            shape = shape._replace(sinks=True)
        rows = make(shape)
        batch = [rows.add(9), rows.add(6)]
        _prefill(rows, [(batch[0], 8)])
        parts = rows.next_parts([(batch[0], 1), (batch[1], 6)])
        metadata = rows.metadata(parts)
        query, tensors = rows.query(parts), _tensors(metadata)
        key = torch.cat([row.key[begin:end] for row, begin, end in parts]).to(rows.device)
        value = torch.cat([row.value[begin:end] for row, begin, end in parts]).to(rows.device)
        tensors |= {"query": query, "key": key, "value": value}
        if rows.sinks is not None:
            tensors["sinks"] = rows.sinks
        lists = {"query_start", "seq_lens", "block_lists", "max_query_len", "max_seq_len"}
        before = {name: tensor.clone() for name, tensor in tensors.items()}
        plain = {name: repr(getattr(metadata, name)) for name in lists}
        rows.backend.write(rows.cache, key, value, metadata)
        rows.forward(parts, metadata, query)
        for name, tensor in tensors.items():
            assert torch.equal(tensor, before[name]), f"{name} was changed"
        for name, text in plain.items():
            assert repr(getattr(metadata, name)) == text, f"metadata.{name} was changed"

    def test_arguments_need_not_be_contiguous(self, make: Make) -> None:
        """Requires nothing.
        Does: gives query, key and value with other strides, as models make them by transposing.
        Must: give the same result.
        """
        rows = make()
        batch = [rows.add(9), rows.add(6)]
        _prefill(rows, [(batch[0], 8)])
        parts = rows.next_parts([(batch[0], 1), (batch[1], 6)])
        metadata = rows.metadata(parts)
        key = torch.cat([row.key[begin:end] for row, begin, end in parts]).to(rows.device)
        value = torch.cat([row.value[begin:end] for row, begin, end in parts]).to(rows.device)
        rows.backend.write(rows.cache, _transposed(key), _sliced(value), metadata)
        for change in (_transposed, _sliced):
            out = rows.forward(parts, metadata, change(rows.query(parts)))
            rows.check(parts, out, "arguments that are not contiguous")

    # In an engine

    def test_tokens_of_an_engine(self, subject: Subject, seed: int) -> None:
        """Requires nothing.
        Does: generates with a model of two layers in a real engine, with chunks, a cache that is
        too small and prompts that begin alike.
        Must: lead to the tokens that the model gives without a cache.
        """
        rng = random.Random(seed)
        model = tiny_checkpoint()
        shared = [rng.randrange(3, 99) for _ in range(11)]
        prompts = [
            [*shared[: rng.choice((0, 9, 11))], *(rng.randrange(3, 99) for _ in range(length))]
            for length in (1, 2, 9, 17, 4, 12)
        ]
        with _launch(subject, {}, cache={"num_blocks": 120 // _size_of(subject)}) as engine:
            outputs = list(engine.generate(prompts, greedy(8)))
        for prompt, output in zip(prompts, outputs, strict=True):
            tokens = output.outputs[0].token_ids
            assert len(tokens) == 8, f"{len(tokens)} tokens: {output.outputs[0].error}"
            logits = last_logits(model.config, model.weights, prompt, tokens, Traits())
            chosen = logits.gather(1, torch.tensor(tokens)[:, None])[:, 0]
            worse = (logits.amax(-1) - chosen).tolist()
            wrong = [place for place, by in enumerate(worse) if not by <= LOGIT_MARGIN]
            assert not wrong, (
                f"token {wrong[0]} after a prompt of {len(prompt)} is {tokens[wrong[0]]}, whose "
                f"logit is {worse[wrong[0]]:.3g} below that of the best"
            )


def _backend(maker: PartMaker, config: Any, device: str, block_size: int) -> AttentionBackend:
    section = msgspec.structs.replace(config.cache, block_size=block_size)
    config = msgspec.structs.replace(config, cache=section)
    backend: AttentionBackend = maker(
        "attention_backend", config, device=device, block_size=block_size
    )
    return backend


def _block_size(maker: PartMaker, config: Any, device: str) -> int:
    """The smallest of those of the suite that the backend takes."""
    for size in (4, 16, 32, 64, 128):
        try:
            _backend(maker, config, device, size)
        except UnsupportedModelError:
            continue
        return size
    raise AssertionError("the backend refuses all block sizes from 4 to 128")


def _served(make: Make, shapes: Sequence[Shape]) -> Iterator[PagedRows]:
    """Rows of each shape but those that the backend refuses, which are not all."""
    refusals = []
    for salt, shape in enumerate(shapes):
        try:
            rows = make(shape, salt=salt, num_blocks=256)
        except UnsupportedModelError as error:
            refusals.append(error)
        else:
            yield rows
    assert len(refusals) < len(shapes), f"all sizes of the test are refused: {refusals[0]}"


def _random_shape(number: int) -> Shape:
    rng = random.Random(number)
    kv_heads = rng.choice((1, 2, 3))
    return Shape(
        heads=kv_heads * rng.choice((1, 2, 4)),
        kv_heads=kv_heads,
        size=rng.choice(HEAD_SIZES),
        block_size=rng.choice(BLOCK_SIZES),
    )


def _prefill(rows: PagedRows, counts: Sequence[tuple[Row, int]]) -> None:
    """Earlier steps, of which nothing is checked."""
    parts = rows.next_parts([(row, count) for row, count in counts if count])
    if parts:
        rows.write(parts, rows.metadata(parts))


def _chunk_and_decode(rows: PagedRows) -> None:
    first, second, third = rows.add(21), rows.add(14), rows.add(18)
    rows.step([(first, 20), (second, 5)], "prompts")
    rows.step([(second, 8), (first, 1), (third, 17)], "chunks around a decode")
    rows.step([(third, 1), (second, 1)], "decodes")
    for row in (first, second, third):
        rows.release(row)


def _tensors(metadata: Any) -> dict[str, torch.Tensor]:
    names = ("block_tables", "slot_mapping", "seq_lens_tensor", "query_start_tensor")
    return {name: getattr(metadata, name) for name in names}


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(0, 1).contiguous().transpose(0, 1)


def _sliced(tensor: torch.Tensor) -> torch.Tensor:
    """Every second row of a larger tensor, as of one that holds query, key and value."""
    return torch.stack([tensor, torch.full_like(tensor, torch.nan)], 1)[:, 0]


def _size_of(subject: Subject) -> int:
    return subject.config().cache.block_size


def _launch(subject: Subject, traits: dict[str, Any], **sections: Any) -> Any:
    """An engine with the kit's model, which asks that of attention."""
    own = {
        "model": {
            "name": str(tiny_checkpoint().path),
            "tokenizer": "none",
            "loader": "conformance-tiny",
        },
        "executor": {"worker": subject.given.get("executor", {}).get("worker", "cpu")},
        "plugins": {"options": {"conformance-tiny": traits}},
    }
    return subject.launch(beside=[TinyModels()], **merged(own, sections))


def _refused(subject: Subject, traits: dict[str, Any], dtype: str = "float32") -> None:
    try:
        engine = _launch(subject, traits, model={"dtype": dtype})
    except UnsupportedModelError:
        return
    engine.shutdown()
    raise AssertionError(
        f"an engine started with a model that needs {traits or dtype}, which is not declared"
    )
