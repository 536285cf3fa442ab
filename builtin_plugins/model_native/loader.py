"""The model loader `native`: the Llama family on the CPU, with compiled kernels.

Light, since every loader is asked to rate a model: torch is imported by `load`.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, ClassVar

from builtin_plugins.model_native.formats import FORMATS, GGUF, GGUF_RECORD
from builtin_plugins.model_native.support import check_support
from framework.sdk.native import available
from hookspecs.contracts.model import LoaderCapability, ModelLoader, ResolvedModel
from hookspecs.errors import UnsupportedModelError

if TYPE_CHECKING:
    from pathlib import Path

    from builtin_plugins.model_native.model import NativeModel

__all__ = ["NativeLoader"]


class NativeLoader(ModelLoader):
    """Worker process. Reads safetensors from a local directory, never the network."""

    capabilities: ClassVar[frozenset[LoaderCapability]] = frozenset({LoaderCapability.QUANTIZATION})

    @classmethod
    def rate(
        cls, model: ResolvedModel, *, dtype: str, device: str, quantization: str | None
    ) -> int:
        """High: for what it serves nothing else is as fast."""
        _check(model, dtype, device, quantization)
        return 20

    def load(self, model: ResolvedModel, *, dtype: str, device: str) -> NativeModel:
        """UnsupportedModelError, before weights are read wherever that is possible."""
        quantization = self.context.config.model.quantization
        try:
            path = _check(model, dtype, device, quantization)
        except UnsupportedModelError as error:
            known = quantization is None or quantization in FORMATS
            advice = "model loader (model.loader), or `auto`" if known else "model.quantization"
            raise UnsupportedModelError(
                f"model {model.name!r} can not be served by the model loader `native`: "
                f"{str(error).rstrip('.')}. Choose another {advice}."
            ) from error
        from builtin_plugins.model_native.reading import read_model

        return read_model(path, quantization, self.context.progress)


def _check(model: ResolvedModel, dtype: str, device: str, quantization: str | None) -> Path:
    """The model's directory. UnsupportedModelError with the reason."""
    if quantization is not None and quantization not in FORMATS:
        near = get_close_matches(quantization.lower(), FORMATS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UnsupportedModelError(
            f"it quantizes to {', '.join(FORMATS)}, not to {quantization!r} "
            f"(model.quantization{hint})"
        )
    path = check_support(model, dtype=dtype, device=device)
    if quantization == GGUF and not (path / GGUF_RECORD).is_file():
        raise UnsupportedModelError(
            f"model.quantization is gguf, but {str(path)!r} was not converted from a GGUF file. "
            "Name a .gguf file as the model, or use int8 or int4"
        )
    missing = available()
    if missing is not None:
        raise UnsupportedModelError(f"there are no kernels here: {missing}")
    return path
