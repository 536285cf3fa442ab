"""Settings of the model and its execution that mean nothing without a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hookspecs.config import EngineConfig
from hookspecs.errors import UnsupportedFeatureError

__all__ = ["check_settings"]

_WITHOUT_EFFECT: Final = {
    "model": ("loader", "dtype"),
    "cache": ("kv_dtype",),
    "executor": ("attention", "threads"),
}


def check_settings(config: EngineConfig, report: Callable[[str], None]) -> None:
    """UnsupportedFeatureError for `model.quantization`, which would change results; a line for
    `report` about each other setting that was given and has no effect."""
    quantization = config.model.quantization
    if quantization is not None:
        raise UnsupportedFeatureError(
            f"model.quantization is {quantization!r}, but the worker `scripted` has no weights to "
            "quantize. Leave it out, or choose another worker (executor.worker)."
        )
    default = EngineConfig()
    for section, keys in _WITHOUT_EFFECT.items():
        given, usual = getattr(config, section), getattr(default, section)
        for key in keys:
            if getattr(given, key) != getattr(usual, key):
                report(f"{section}.{key} is set, but has no effect with the worker `scripted`")
