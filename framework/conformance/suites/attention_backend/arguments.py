"""Tensors that a backend is given."""

from __future__ import annotations

from typing import Any

import torch

from framework.conformance.subject import Subject
from framework.conformance.suites.attention_backend.base import AttentionBackendPart, Make, prefill
from hookspecs.contracts.attention import AttentionCapability

__all__ = ["Arguments"]


class Arguments(AttentionBackendPart):
    """Arguments are read as they lie and left as they were."""

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
        prefill(rows, [(batch[0], 8)])
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
        prefill(rows, [(batch[0], 8)])
        parts = rows.next_parts([(batch[0], 1), (batch[1], 6)])
        metadata = rows.metadata(parts)
        key = torch.cat([row.key[begin:end] for row, begin, end in parts]).to(rows.device)
        value = torch.cat([row.value[begin:end] for row, begin, end in parts]).to(rows.device)
        rows.backend.write(rows.cache, _transposed(key), _sliced(value), metadata)
        for change in (_transposed, _sliced):
            out = rows.forward(parts, metadata, change(rows.query(parts)))
            rows.check(parts, out, "arguments that are not contiguous")


def _tensors(metadata: Any) -> dict[str, torch.Tensor]:
    names = ("block_tables", "slot_mapping", "seq_lens_tensor", "query_start_tensor")
    return {name: getattr(metadata, name) for name in names}


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(0, 1).contiguous().transpose(0, 1)


def _sliced(tensor: torch.Tensor) -> torch.Tensor:
    """Every second row of a larger tensor, as of one that holds query, key and value."""
    return torch.stack([tensor, torch.full_like(tensor, torch.nan)], 1)[:, 0]
