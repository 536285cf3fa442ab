"""The KV cache buffer."""

from __future__ import annotations

import torch

from framework.conformance.base import requires
from framework.conformance.suites.attention_backend.base import AttentionBackendPart, Make
from framework.conformance.worlds.paged_rows import Part
from hookspecs.contracts.attention import AttentionCapability

__all__ = ["Cache"]


class Cache(AttentionBackendPart):
    """The cache holds what was written, where it was written."""

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
