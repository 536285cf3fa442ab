"""Registers the worker `scripted`, and the model source of the same name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from builtin_plugins.worker_scripted.options import CAPABILITIES, ScriptedOptions
from builtin_plugins.worker_scripted.request import ScriptedRequest
from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl

__all__ = ["WorkerScriptedPlugin", "plugin"]

_PACKAGE = "builtin_plugins.worker_scripted"


class WorkerScriptedPlugin(EngineHooks):
    """An engine without a model: `model.name = "scripted"`, `executor.worker = "scripted"`."""

    PLUGIN = PluginInfo(
        name="worker-scripted",
        api=">=1.0,<2",
        description="Worker without a model, for exact tests of everything around it.",
    )

    @hookimpl
    def register_workers(self) -> Iterable[Provider[Any]]:
        """The provider `scripted`."""
        yield Provider(
            "scripted",
            f"{_PACKAGE}.worker:ScriptedWorker",
            options=ScriptedOptions,
            capabilities=CAPABILITIES,
            request_options=ScriptedRequest,
            description="Emits scripted tokens or logits; verifies block tables and positions.",
        )

    @hookimpl
    def register_model_sources(self) -> Iterable[Provider[Any]]:
        """The provider `scripted`, for the names `scripted` and `scripted:DIR`."""
        yield Provider(
            "scripted",
            f"{_PACKAGE}.source:ScriptedSource",
            options=ScriptedOptions,
            description="A model without files; `scripted:DIR` has the tokenizer in DIR.",
        )


plugin = WorkerScriptedPlugin()
