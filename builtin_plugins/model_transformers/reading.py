"""A directory in Hugging Face layout to a paged model, by transformers. Worker process."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from builtin_plugins.model_transformers.interface import ATTENTION_NAME
from builtin_plugins.model_transformers.loading_progress import reported
from builtin_plugins.model_transformers.paged_model import PagedTransformersModel
from builtin_plugins.model_transformers.probe import probe
from builtin_plugins.model_transformers.rope import pin_rope
from builtin_plugins.model_transformers.support import check_architecture, unsupported
from hookspecs.errors import UnsupportedModelError

__all__ = ["read_model"]


def read_model(
    path: str,
    *,
    dtype: str,
    device: str,
    max_model_len: int,
    trust_remote_code: bool,
    progress: Callable[[str, float], None],
) -> PagedTransformersModel:
    """UnsupportedModelError, before weights are read wherever that is possible."""
    common = {"trust_remote_code": trust_remote_code}
    config = _read_config(path, common)
    check_architecture(config, path)
    _probe_without_weights(config, dtype, common)
    module, unused = _read_module(config, path, dtype, common, progress)
    module = module.to(device)
    if module.config._attn_implementation != ATTENTION_NAME:
        raise unsupported(config, "it ignores the attention implementation asked for")
    module.eval().requires_grad_(False)
    _quiet(module)
    pin_rope(module, max_model_len)
    return PagedTransformersModel(module, probe(module), unused)


def _read_config(path: str, common: dict[str, Any]) -> Any:
    try:
        return AutoConfig.from_pretrained(path, local_files_only=True, **common)
    except Exception as error:
        raise _load_error("the configuration", path, error) from error


def _probe_without_weights(config: Any, dtype: str, common: dict[str, Any]) -> None:
    try:
        with torch.device("meta"):
            skeleton = AutoModelForCausalLM.from_config(
                copy.deepcopy(config),
                dtype=getattr(torch, dtype),
                attn_implementation=ATTENTION_NAME,
                **common,
            )
    except Exception as error:
        raise unsupported(
            config, f"its module can not be made ({type(error).__name__}: {error})"
        ) from error
    _quiet(skeleton)
    try:
        probe(skeleton)
    except (NotImplementedError, RuntimeError):
        # A forward that looks at values can not run without them. Such a model is probed once
        # its weights are read; UnsupportedModelError is no RuntimeError.
        return


def _read_module(
    config: Any,
    path: str,
    dtype: str,
    common: dict[str, Any],
    progress: Callable[[str, float], None],
) -> tuple[Any, frozenset[str]]:
    """The module, and the names in the checkpoint that it has no place for."""
    try:
        with reported(progress):
            module, info = AutoModelForCausalLM.from_pretrained(
                path,
                config=config,
                dtype=getattr(torch, dtype),
                attn_implementation=ATTENTION_NAME,
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
                **common,
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
