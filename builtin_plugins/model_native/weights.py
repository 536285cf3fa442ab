"""A model's weights in memory, and the place there of each tensor of a checkpoint."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import NamedTuple

import torch

from builtin_plugins.model_native.architecture import Architecture
from builtin_plugins.model_native.formats import GROUPED, linear_format
from builtin_plugins.model_native.gguf_blocks import Groups
from builtin_plugins.model_native.gguf_tensors import GgufTensors
from builtin_plugins.model_native.layer import Layer
from builtin_plugins.model_native.linear import PackedLinear
from builtin_plugins.model_native.memory import Memory

__all__ = ["EMBEDDING", "HEAD", "Parameter", "Weights"]

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"


class Parameter(NamedTuple):
    """Where a tensor of a checkpoint goes."""

    shape: torch.Size
    write: Callable[[torch.Tensor], object]
    """Puts a tensor of that shape, of any floating-point type, in place."""
    write_groups: Callable[[Groups], object] | None = None
    """Puts weights of that shape in place which are quantized already."""


class Weights:
    """Zero until they are written, through `parameters`."""

    def __init__(
        self,
        kernels: ctypes.CDLL,
        architecture: Architecture,
        quantization: str | None,
        gguf: GgufTensors | None,
        expect: Callable[[str, torch.Size], None],
        *,
        tied: bool,
    ) -> None:
        """`expect` is told the name and shape of each parameter before memory is taken for it, and
        raises if there is no such tensor. `tied`: the head's weights are the embedding's, and lie
        in memory once."""
        self.parameters: dict[str, Parameter] = {}
        """By names of checkpoints, in the order in which they are used; a tied one is under
        EMBEDDING."""
        self._kernels = kernels
        self._architecture = architecture
        self._quantization = quantization
        self._gguf = gguf
        self._expect = expect
        self._memory = Memory()
        self._linears: list[PackedLinear] = []
        """Keeps alive what the structures point to."""
        a = architecture
        vocab = {EMBEDDING.removesuffix(".weight"): a.vocab_size}
        self.embedding = self._linear(a.hidden, vocab, head=True)
        self.layers = [self._layer(index) for index in range(a.layers)]
        self.final_norm = self._values("model.norm.weight", a.hidden)
        self.head = self.embedding
        if not tied:
            vocab = {HEAD.removesuffix(".weight"): a.vocab_size}
            self.head = self._linear(a.hidden, vocab, head=True)

    @property
    def num_bytes(self) -> int:
        """Of all weights, as they lie in memory."""
        return self._memory.taken

    @property
    def linears(self) -> list[PackedLinear]:
        """All linear layers."""
        return self._linears

    def _layer(self, index: int) -> Layer:
        a, base = self._architecture, f"model.layers.{index}."
        attention, mlp = base + "self_attn.", base + "mlp."
        made = Layer()
        norms = {"input_norm": (base + "input_layernorm", a.hidden)}
        if a.head_norms:
            norms["query_norm"] = attention + "q_norm", a.head_size
            norms["key_norm"] = attention + "k_norm", a.head_size
        norms["post_norm"] = base + "post_attention_layernorm", a.hidden
        for field, (name, size) in norms.items():
            setattr(made, field, self._values(f"{name}.weight", size).data_ptr())
        names = [f"{attention}{part}_proj" for part in "qkv"]
        made.qkv = self._linear(
            a.hidden, dict(zip(names, a.qkv_parts, strict=True)), bias=a.qkv_bias
        ).struct
        made.out = self._linear(
            a.qkv_parts[0], {f"{attention}o_proj": a.hidden}, bias=a.out_bias
        ).struct
        made.gate_up = self._linear(
            a.hidden, {f"{mlp}gate_proj": a.inner, f"{mlp}up_proj": a.inner}, bias=a.mlp_bias
        ).struct
        made.down = self._linear(a.inner, {f"{mlp}down_proj": a.hidden}, bias=a.mlp_bias).struct
        return made

    def _values(self, name: str, *shape: int) -> torch.Tensor:
        """A parameter that lies as it is in checkpoints, float32."""
        size = torch.Size(shape)
        self._expect(name, size)
        values = self._memory.take(4 * size.numel()).view(torch.float32).view(size)
        self.parameters[name] = Parameter(size, values.copy_)
        return values

    def _linear(
        self, in_features: int, parts: dict[str, int], *, bias: bool = False, head: bool = False
    ) -> PackedLinear:
        """One layer of several modules of the checkpoint, by name: their output features follow
        each other."""
        for name, out in parts.items():
            self._expect(f"{name}.weight", torch.Size((out, in_features)))
            if bias:
                self._expect(f"{name}.bias", torch.Size((out,)))
        made = PackedLinear(
            self._kernels,
            linear_format(self._quantization, head=head)
            if self._gguf is None
            else self._gguf.format_of([f"{name}.weight" for name in parts]),
            sum(parts.values()),
            in_features,
            self._memory,
            bias=bias,
        )
        self._linears.append(made)
        first = 0
        for name, out in parts.items():
            self.parameters[f"{name}.weight"] = _rows(made, first, out)
            if made.bias is not None:
                part = made.bias[first : first + out]
                self.parameters[f"{name}.bias"] = Parameter(part.shape, part.copy_)
            first += out
        return made


def _rows(linear: PackedLinear, first: int, out: int) -> Parameter:
    return Parameter(
        torch.Size((out, linear.struct.in_)),
        lambda weight: linear.pack(weight, first),
        (lambda groups: linear.pack_groups(groups, first))
        if linear.struct.format in GROUPED
        else None,
    )
