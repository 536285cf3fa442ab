"""The plugin `model-native`: the Llama family on CPUs, with compiled kernels."""

from __future__ import annotations

from collections.abc import Iterable

from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.model import LoaderCapability, ModelLoader

__all__ = ["NativePlugin", "plugin"]


class NativePlugin(EngineHooks):
    """Offers the model loader `native`."""

    PLUGIN = PluginInfo(
        name="model-native",
        api=">=1.0,<2",
        description="Models of the Llama family on CPUs, with kernels that are compiled here.",
    )

    @hookimpl
    def register_model_loaders(self) -> Iterable[Provider[ModelLoader]]:
        yield Provider(
            "native",
            "builtin_plugins.model_native.loader:NativeLoader",
            capabilities=frozenset({LoaderCapability.QUANTIZATION}),
            description="Llama, Mistral, Qwen2 and Qwen3 in float32 or quantized, on the CPU.",
        )


plugin = NativePlugin()
