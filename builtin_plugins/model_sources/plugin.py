"""Registers the model sources `directory`, `hub`, `package` and `gguf`."""

from __future__ import annotations

from collections.abc import Iterable

from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.model import ModelSource

_PACKAGE = "builtin_plugins.model_sources"


class ModelSourcesPlugin(EngineHooks):
    """Where models come from."""

    PLUGIN = PluginInfo(
        name="model-sources",
        api=">=1.0,<2",
        description="Models from directories, the hub, installed packages and GGUF files",
    )

    @hookimpl
    def register_model_sources(self) -> Iterable[Provider[ModelSource]]:
        yield Provider(
            "gguf",
            f"{_PACKAGE}.gguf:GgufSource",
            description="A .gguf file, converted once to safetensors in the cache directory.",
        )
        yield Provider(
            "package",
            f"{_PACKAGE}.package:PackageSource",
            description="`package:NAME`: weights shipped in an installed Python package.",
        )
        yield Provider(
            "directory",
            f"{_PACKAGE}.directory:DirectorySource",
            description="A local directory with config.json and *.safetensors.",
        )
        yield Provider(
            "hub",
            f"{_PACKAGE}.hub:HubSource",
            description="`org/name` on the Hugging Face hub.",
        )


plugin = ModelSourcesPlugin()
