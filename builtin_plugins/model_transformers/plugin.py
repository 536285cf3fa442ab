"""The plugin `model-transformers`: models of the transformers library."""

from __future__ import annotations

from collections.abc import Iterable

from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.model import ModelLoader

__all__ = ["TransformersPlugin", "plugin"]


class TransformersPlugin(EngineHooks):
    """Offers the model loader `transformers`."""

    PLUGIN = PluginInfo(
        name="model-transformers",
        api=">=1.0,<2",
        description="Decoder-only architectures of transformers, over a paged KV cache.",
    )

    @hookimpl
    def register_model_loaders(self) -> Iterable[Provider[ModelLoader]]:
        yield Provider(
            "transformers",
            "builtin_plugins.model_transformers.loader:TransformersLoader",
            description="Any decoder-only architecture that lets its attention be replaced.",
        )


plugin = TransformersPlugin()
