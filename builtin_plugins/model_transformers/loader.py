"""The model loader `transformers`: a directory in Hugging Face layout to a model."""

from __future__ import annotations

import copy
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from builtin_plugins.model_transformers.interface import ATTENTION_NAME
from builtin_plugins.model_transformers.loading_progress import reported
from builtin_plugins.model_transformers.paged_model import PagedTransformersModel
from builtin_plugins.model_transformers.probe import probe
from builtin_plugins.model_transformers.rope import pin_rope
from builtin_plugins.model_transformers.support import check_architecture, unsupported
from framework.sdk.remote_code import refuse_foreign_code
from hookspecs.contracts.model import ModelLoader, ResolvedModel
from hookspecs.errors import UnsupportedModelError

__all__ = ["TransformersLoader"]


class TransformersLoader(ModelLoader):
    """Worker process. Reads safetensors from a local directory, never the network."""

    def load(self, model: ResolvedModel, *, dtype: str, device: str) -> PagedTransformersModel:
        """UnsupportedModelError, before weights are read wherever that is possible."""
        if model.path is None:
            raise UnsupportedModelError(
                f"model {model.name!r} has no directory of files, which the model loader "
                "`transformers` needs. Choose another model source, or another loader."
            )
        if self.context.config.model.trust_remote_code:
            refuse_foreign_code(model.path)
        config = self._read_config(model.path)
        check_architecture(config, model.path)
        self._probe_without_weights(config, dtype)
        module, unused = self._read_model(config, model.path, dtype)
        module = module.to(device)
        if module.config._attn_implementation != ATTENTION_NAME:
            raise unsupported(config, "it ignores the attention implementation asked for")
        module.eval().requires_grad_(False)
        _quiet(module)
        pin_rope(module, self.context.config.model.max_model_len or model.info.max_model_len)
        return PagedTransformersModel(module, probe(module), unused)

    @property
    def _common(self) -> dict[str, Any]:
        return {"trust_remote_code": self.context.config.model.trust_remote_code}

    def _read_config(self, path: str) -> Any:
        try:
            return AutoConfig.from_pretrained(path, local_files_only=True, **self._common)
        except Exception as error:
            raise _load_error("the configuration", path, error) from error

    def _probe_without_weights(self, config: Any, dtype: str) -> None:
        try:
            with torch.device("meta"):
                skeleton = AutoModelForCausalLM.from_config(
                    copy.deepcopy(config),
                    dtype=getattr(torch, dtype),
                    attn_implementation=ATTENTION_NAME,
                    **self._common,
                )
        except Exception as error:
            raise unsupported(
                config, f"its module can not be made ({type(error).__name__}: {error})"
            ) from error
        _quiet(skeleton)
        try:
            probe(skeleton)
        except (NotImplementedError, RuntimeError):
            # A forward that looks at values can not run without them. Such a model is probed
            # once its weights are read; UnsupportedModelError is no RuntimeError.
            return

    def _read_model(self, config: Any, path: str, dtype: str) -> tuple[Any, frozenset[str]]:
        """The module, and the names in the checkpoint that it has no place for."""
        try:
            with reported(self.context.progress):
                module, info = AutoModelForCausalLM.from_pretrained(
                    path,
                    config=config,
                    dtype=getattr(torch, dtype),
                    attn_implementation=ATTENTION_NAME,
                    use_safetensors=True,
                    local_files_only=True,
                    output_loading_info=True,
                    **self._common,
                )
        except Exception as error:
            raise _load_error("the weights", path, error) from error
        if info["missing_keys"]:
            # transformers would go on with random numbers in their place.
            names = sorted(info["missing_keys"])
            raise UnsupportedModelError(
                f"the checkpoint in {path!r} lacks {len(names)} weights that "
                f"{type(module).__name__} needs, for example {names[0]!r}. It is incomplete, or "
                "of a model with another head; use a causal language model's checkpoint."
            )
        return module, frozenset(info["unexpected_keys"])


def _quiet(module: Any) -> None:
    # With a padding token and without a mask, some models (GPT-2) search each input for padding,
    # which makes the host wait for the device. Flattened batches have no padding.
    module.config.pad_token_id = None


def _load_error(what: str, path: str, error: Exception) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"transformers could not load {what} in {path!r}: {type(error).__name__}: {error}"
    )
