"""A plan in words, for people."""

from __future__ import annotations

from collections.abc import Sequence

from kv_plan.plan import Plan

__all__ = ["lines"]


def lines(plan: Plan) -> list[str]:
    """Lines of at most about a hundred characters, besides the name of the model."""
    sliding = f", {plan.num_sliding_layers} with a window" if plan.num_sliding_layers else ""
    ranks = plan.tensor_parallel_size
    each = f" on each of {ranks} ranks" if ranks > 1 else ""
    beyond = ""
    if plan.num_sliding_layers:
        beyond = f" ({plan.bytes_per_token_beyond_windows:,} once windows have passed)"
    longest = plan.max_request_tokens
    alone = "of any length" if longest is None else f"of up to {longest:,} tokens"
    facts = [
        ("model", repr(plan.model)),
        ("layers", f"{plan.num_layers}{sliding} ({plan.architecture})"),
        ("keys, values", f"{plan.kv_heads} heads of {plan.head_size}, {plan.dtype}{each}"),
        ("a token", f"{plan.bytes_per_token:,} bytes{beyond}"),
        ("a block", f"{plan.bytes_per_block:,} bytes, {plan.block_size} tokens{_of(plan)}"),
        ("the cache", f"{plan.kv_bytes:,} bytes, {plan.num_blocks:,} blocks: one request {alone}"),
    ]
    rows = [(f"{fit.tokens:,}", f"{fit.blocks:,}", f"{fit.requests:,}") for fit in plan.fits]
    return [
        *(f"{name:<14}{value}" for name, value in facts),
        "",
        *_table(("tokens", "blocks", "requests at once"), rows),
        *(["", *(f"note: {note}" for note in plan.notes)] if plan.notes else []),
    ]


def _of(plan: Plan) -> str:
    return f" of one of {plan.num_groups} groups of layers" if plan.num_groups > 1 else ""


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in (header, *rows)
    ]
