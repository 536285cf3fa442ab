"""What the parts of the suite of attention backends share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest

from framework.conformance.subject import Subject, merged
from framework.conformance.worlds.checkpoint import tiny_checkpoint
from framework.conformance.worlds.makers import PartMaker
from framework.conformance.worlds.paged_rows import PagedRows, Row, Shape
from framework.conformance.worlds.tensors import TensorConformance
from framework.conformance.worlds.tiny_llama import TinyModels
from hookspecs.contracts.attention import AttentionBackend
from hookspecs.errors import UnsupportedModelError

__all__ = [
    "AttentionBackendPart",
    "Make",
    "backend_of",
    "block_size_of",
    "chunk_and_decode",
    "launch",
    "prefill",
    "served",
]

Make = Callable[..., PagedRows]


class AttentionBackendPart(TensorConformance):
    """A backend that computes rows whose result is known."""

    kind = "attention_backend"

    @pytest.fixture
    def make(self, subject: Subject, device: str, seed: int) -> Make:
        """Makes rows of a shape over a new backend. UnsupportedModelError if it refuses it."""
        maker, config = PartMaker(subject), subject.config()

        def rows(shape: Shape | None = None, *, salt: int = 0, **fields: Any) -> PagedRows:
            shape = shape or Shape(block_size=block_size_of(maker, config, device))
            return PagedRows(
                backend_of(maker, config, device, shape.block_size),
                shape,
                seed=seed * 1_000_003 + salt,
                device=device,
                **fields,
            )

        return rows


def backend_of(maker: PartMaker, config: Any, device: str, block_size: int) -> AttentionBackend:
    section = msgspec.structs.replace(config.cache, block_size=block_size)
    config = msgspec.structs.replace(config, cache=section)
    backend: AttentionBackend = maker(
        "attention_backend", config, device=device, block_size=block_size
    )
    return backend


def block_size_of(maker: PartMaker, config: Any, device: str) -> int:
    """The smallest of those of the suite that the backend takes."""
    for size in (4, 16, 32, 64, 128):
        try:
            backend_of(maker, config, device, size)
        except UnsupportedModelError:
            continue
        return size
    raise AssertionError("the backend refuses all block sizes from 4 to 128")


def served(make: Make, shapes: Sequence[Shape]) -> Iterator[PagedRows]:
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


def prefill(rows: PagedRows, counts: Sequence[tuple[Row, int]]) -> None:
    """Earlier steps, of which nothing is checked."""
    parts = rows.next_parts([(row, count) for row, count in counts if count])
    if parts:
        rows.write(parts, rows.metadata(parts))


def chunk_and_decode(rows: PagedRows) -> None:
    first, second, third = rows.add(21), rows.add(14), rows.add(18)
    rows.step([(first, 20), (second, 5)], "prompts")
    rows.step([(second, 8), (first, 1), (third, 17)], "chunks around a decode")
    rows.step([(third, 1), (second, 1)], "decodes")
    for row in (first, second, third):
        rows.release(row)


def launch(subject: Subject, traits: dict[str, Any], **sections: Any) -> Any:
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
