"""Models with quantized weights beside transformers with the same rounded numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from builtin_plugins.model_native.formats import INT8, INT8_GROUPED, linear_format
from builtin_plugins.model_native.library import kernels
from builtin_plugins.model_native.linear import PackedLinear
from builtin_plugins.model_native.memory import Memory
from hookspecs.contracts.model import ResolvedModel
from hookspecs.errors import UnsupportedModelError
from tests.model_native.families import WholeRows, load
from tests.worker_cpu.families import Reference, save_model

TOKENS = torch.arange(3, 83)
LENGTH = 4
"""Of sequences: a number that is rounded to the other side makes the rest of a sequence differ."""
SIZES: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 80,
    "intermediate_size": 150,
    "num_hidden_layers": 2,
}


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return save_model(
        tmp_path_factory.mktemp("quantized"), **SIZES, tie_word_embeddings=request.param
    )


def _logits(model: ResolvedModel, quantization: str | None) -> torch.Tensor:
    loaded = load(model, quantization)
    loaded.set_attention(WholeRows([LENGTH] * (len(TOKENS) // LENGTH)))
    rows = torch.arange(len(TOKENS))
    positions = rows % LENGTH
    return loaded.forward(TOKENS, positions, rows)


def _rounded_weights(weight: torch.Tensor, format: int) -> torch.Tensor:
    packed = PackedLinear(kernels(), format, *weight.shape, Memory())
    packed.pack(weight)
    to = torch.empty_like(weight)
    packed.unpack_rows(torch.arange(len(weight)), to)
    return to


def _rounding(format: int) -> Callable[[torch.nn.Module, tuple[torch.Tensor]], torch.Tensor]:
    """Of the input of a module: to int8, a scale a token or 32 features."""

    def round_input(module: torch.nn.Module, inputs: tuple[torch.Tensor]) -> torch.Tensor:
        (x,) = inputs
        width = x.shape[-1] if format == INT8 else 32
        groups = torch.nn.functional.pad(x, (0, -x.shape[-1] % width)).unflatten(-1, (-1, width))
        scale = (groups.abs().amax(-1, keepdim=True) / 127).clamp(min=1e-30)
        return ((groups / scale).round() * scale).flatten(-2)[..., : x.shape[-1]]

    return round_input


def _expected(model: ResolvedModel, quantization: str) -> torch.Tensor:
    module = Reference(model).module
    with torch.inference_mode():
        for name, part in module.named_modules():
            format = linear_format(quantization, head=name == "lm_head")
            if isinstance(part, torch.nn.Linear):
                part.register_forward_pre_hook(_rounding(format))
            elif isinstance(part, torch.nn.Embedding):
                format = INT8_GROUPED
            else:
                continue
            part.weight = torch.nn.Parameter(_rounded_weights(part.weight, format))
        logits: torch.Tensor = module(TOKENS.view(-1, LENGTH)).logits.flatten(0, 1)
    return logits


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_logits(model: ResolvedModel, quantization: str) -> None:
    exact, ours = _logits(model, None), _logits(model, quantization)
    lost = (ours - exact).norm()
    assert 0 < lost < 0.3 * exact.norm()
    expected = _expected(model, quantization)
    equal = (ours - expected).norm(dim=1) < 1e-3 * expected.norm(dim=1)
    assert equal.float().mean() > 0.8


@pytest.mark.parametrize(("quantization", "bytes_a_weight"), [("int8", 1.3), ("int4", 0.9)])
def test_memory(quantization: str, bytes_a_weight: float, tmp_path: Path) -> None:
    sizes = {**SIZES, "hidden_size": 256, "intermediate_size": 512}
    saved = save_model(tmp_path, **sizes, tie_word_embeddings=True)
    floats, packed = load(saved).weight_bytes, load(saved, quantization).weight_bytes
    assert packed < bytes_a_weight * floats / 4


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_weights_are_replaced(model: ResolvedModel, quantization: str, tmp_path: Path) -> None:
    tied = Reference(model).module.config.tie_word_embeddings
    torch.manual_seed(7)
    other = save_model(tmp_path, **SIZES, tie_word_embeddings=tied)
    loaded = load(model, quantization)
    loaded.update_weights(
        {name: 2 * value for name, value in Reference(other).module.state_dict().items()}
    )
    fresh = Reference(other).module
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.mul_(2)
    fresh.save_pretrained(str(other.path))
    loaded.set_attention(WholeRows([LENGTH] * (len(TOKENS) // LENGTH)))
    rows = torch.arange(len(TOKENS))
    positions = rows % LENGTH
    assert torch.equal(loaded.forward(TOKENS, positions, rows), _logits(other, quantization))


def test_other_names_are_refused(model: ResolvedModel) -> None:
    with pytest.raises(UnsupportedModelError, match="int8, int4, gguf, not to 'fp4'"):
        load(model, "fp4")


def test_gguf_needs_a_gguf_file(model: ResolvedModel) -> None:
    with pytest.raises(UnsupportedModelError, match=r"was not converted from a GGUF file"):
        load(model, "gguf")
