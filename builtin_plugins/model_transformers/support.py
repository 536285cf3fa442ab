"""Can this architecture run on a paged cache? What configuration and class tell.

Weights are not needed. What only a forward shows is in `probe`.
"""

from __future__ import annotations

import inspect
from typing import Any

from transformers.dynamic_module_utils import get_class_from_dynamic_module
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from hookspecs.errors import UnsupportedModelError

__all__ = ["check_architecture", "config_value", "text_config", "unsupported"]

_LAYER_TYPES = frozenset({"full_attention", "sliding_attention"})


def unsupported(config: Any, reason: str) -> UnsupportedModelError:
    """The error for an architecture that can not be served."""
    names = config_value(config, "architectures") or [config_value(config, "model_type")]
    return UnsupportedModelError(
        f"architecture {names[0]} can not be served by the model loader `transformers`: {reason}. "
        "It serves decoder-only models whose only state is the keys and values of causal "
        "attention. Choose another model, or another model loader (model.loader)."
    )


def config_value(config: Any, name: str) -> Any:
    """An attribute of a configuration; None where it has none.

    Configurations whose layers differ raise RuntimeError for a value without one answer.
    """
    try:
        return getattr(config, name, None)
    except RuntimeError:
        return None


def text_config(config: Any) -> Any:
    """The part of a configuration that describes the language model."""
    return config.get_text_config(decoder=True)


def check_architecture(config: Any, path: str) -> None:
    """Raises UnsupportedModelError with the reason. `path` is the checkpoint's directory, for
    classes that come with it."""
    reason = _config_reason(config) or _class_reason(_model_class(config, path))
    if reason is not None:
        raise unsupported(config, reason)


def _model_class(config: Any, path: str) -> Any:
    remote = (config_value(config, "auto_map") or {}).get("AutoModelForCausalLM")
    if remote is not None and type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        # The configuration is of a class of the checkpoint, so trust_remote_code was given, and
        # the loader has refused references to other repositories.
        return get_class_from_dynamic_module(remote, path)
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise unsupported(config, "transformers has no causal language model for it")
    found = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    return found[0] if isinstance(found, tuple) else found


def _config_reason(config: Any) -> str | None:
    if config_value(config, "is_encoder_decoder"):
        return "it is an encoder-decoder model"
    text = text_config(config)
    other = sorted(set(config_value(text, "layer_types") or ()) - _LAYER_TYPES)
    if other:
        return f"it has layers of type {', '.join(other)}"
    if config_value(text, "num_kv_shared_layers"):
        return "its layers share keys and values with other layers"
    if config_value(text, "use_bidirectional_attention"):
        return "it uses bidirectional attention"
    if config_value(text, "alibi"):
        return "it uses ALiBi position biases"
    return None


def _class_reason(model_class: Any) -> str | None:
    if getattr(model_class, "_is_stateful", False):
        return "it keeps a recurrent state"
    # `_supports_attention_backend` is no gate: classes without it may use the interface too.
    if not model_class._can_set_attn_implementation():
        return "its attention can not be replaced"
    parameters = inspect.signature(model_class.forward).parameters
    for name in ("inputs_embeds", "position_ids", "logits_to_keep"):
        if name not in parameters:
            return f"its forward takes no {name}"
    return None
