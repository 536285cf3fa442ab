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
    PoolingOutput,
    PoolingParams,
    PoolingType,
    RequestOutput,
    SamplingParams,
)

if TYPE_CHECKING:
    from framework.frontend.async_llm import AsyncLLM
    from framework.frontend.llm import LLM
    from framework.frontend.llm_engine import LLMEngine
    from framework.launcher import AsyncEngine, Engine, launch, launch_async, serve

__all__ = [
    "LLM",
    "AsyncEngine",
    "AsyncLLM",
    "CompletionOutput",
    "Engine",
    "EngineConfig",
    "FinishReason",
    "LLMEngine",
    "Logprob",
    "OutputKind",
    "PoolingOutput",
    "PoolingParams",
    "PoolingType",
    "RequestOutput",
    "SamplingParams",
    "launch",
    "launch_async",
    "serve",
]

_LAZY = {
    "LLM": "framework.frontend.llm",
    "AsyncEngine": "framework.launcher",
    "AsyncLLM": "framework.frontend.async_llm",
    "Engine": "framework.launcher",
    "launch": "framework.launcher",
    "launch_async": "framework.launcher",
    "serve": "framework.launcher",
    "LLMEngine": "framework.frontend.llm_engine",
}


def __getattr__(name: str) -> Any:
    """Import what needs more than the contract only when it is used (PEP 562)."""
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'framework' has no attribute {name!r}")
