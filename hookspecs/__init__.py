"""The contract between the kernel and its plugins.

Imports the standard library, pluggy and msgspec only. A plugin needs nothing else:
`PluginInfo`, `Provider`, `hookimpl`, the contract it implements (`hookspecs.contracts.*`) and
the data types (`hookspecs.types.*`).
"""

from hookspecs.config import EngineConfig
from hookspecs.hooks import EngineHooks
from hookspecs.info import Activation, HookKind, PluginInfo, ProcessRole, Provider, Tier
from hookspecs.markers import hookimpl
from hookspecs.types.outputs import CompletionOutput, Logprob, RequestOutput
from hookspecs.types.pooling import PoolingOutput, PoolingParams, PoolingType
from hookspecs.types.request import FinishReason
from hookspecs.types.sampling import OutputKind, SamplingParams
from hookspecs.version import API_VERSION

__all__ = [
    "API_VERSION",
    "Activation",
    "CompletionOutput",
    "EngineConfig",
    "EngineHooks",
    "FinishReason",
    "HookKind",
    "Logprob",
    "OutputKind",
    "PluginInfo",
    "PoolingOutput",
    "PoolingParams",
    "PoolingType",
    "ProcessRole",
    "Provider",
    "RequestOutput",
    "SamplingParams",
    "Tier",
    "hookimpl",
]
