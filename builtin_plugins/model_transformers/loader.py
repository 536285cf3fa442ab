"""The model loader `transformers`: a directory in Hugging Face layout to a model.

Light, since every loader is asked to rate a model: transformers is imported by `load`.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from framework.sdk.remote_code import refuse_foreign_code
from hookspecs.contracts.model import ModelLoader, ResolvedModel
from hookspecs.errors import UnsupportedModelError

if TYPE_CHECKING:
    from builtin_plugins.model_transformers.paged_model import PagedTransformersModel

__all__ = ["TransformersLoader"]


class TransformersLoader(ModelLoader):
    """Worker process. Reads safetensors from a local directory, never the network."""

    @classmethod
    def rate(
        cls, model: ResolvedModel, *, dtype: str, device: str, quantization: str | None
    ) -> int:
        """Low: whatever serves the model with kernels of its own is faster."""
        if quantization is not None:
            raise UnsupportedModelError("it does not quantize")
        if importlib.util.find_spec("transformers") is None:
            raise UnsupportedModelError("the package transformers is not installed")
        _directory_of(model)
        return 10

    def load(self, model: ResolvedModel, *, dtype: str, device: str) -> PagedTransformersModel:
        """UnsupportedModelError, before weights are read wherever that is possible."""
        from builtin_plugins.model_transformers.reading import read_model

        path = _directory_of(model)
        config = self.context.config.model
        if config.trust_remote_code:
            refuse_foreign_code(path)
        return read_model(
            path,
            dtype=dtype,
            device=device,
            max_model_len=config.max_model_len or model.info.max_model_len,
            trust_remote_code=config.trust_remote_code,
            progress=self.context.progress,
        )


def _directory_of(model: ResolvedModel) -> str:
    if model.path is None:
        raise UnsupportedModelError(
            f"model {model.name!r} has no directory of files, which the model loader "
            "`transformers` needs. Choose another model source, or another loader."
        )
    return model.path
