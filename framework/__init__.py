"""An LLM inference engine whose parts are all plugins.

`launch(config)` gives a running engine; plugins are written against `hookspecs`.
"""

from typing import TYPE_CHECKING, Any

from hookspecs import (
    CompletionOutput,
    EngineConfig,
    FinishReason,
    Logprob,
    OutputKind,
    RequestOutput,
    SamplingParams,
)

if TYPE_CHECKING:
    from framework.frontend.llm import LLM
    from framework.frontend.llm_engine import LLMEngine
    from framework.launcher import Engine, launch

__all__ = [
    "LLM",
    "CompletionOutput",
    "Engine",
    "EngineConfig",
    "FinishReason",
    "LLMEngine",
    "Logprob",
    "OutputKind",
    "RequestOutput",
    "SamplingParams",
    "launch",
]

_LAZY = {
    "LLM": "framework.frontend.llm",
    "Engine": "framework.launcher",
    "launch": "framework.launcher",
    "LLMEngine": "framework.frontend.llm_engine",
}


def __getattr__(name: str) -> Any:
    """Import what needs more than the contract only when it is used (PEP 562)."""
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'framework' has no attribute {name!r}")
