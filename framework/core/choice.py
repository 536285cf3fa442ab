"""Choosing a model source, a worker and a model loader where the configuration says `auto`: the
first in the launcher, the others in the core process."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any, cast

from framework.plugins.construct import import_target
from framework.plugins.discovery import Source
from framework.plugins.failure import describe
from framework.plugins.manager import PluginManager
from framework.plugins.registry import RegisteredProvider
from hookspecs.contracts.model import LoaderCapability, ModelLoader, ModelSource, ResolvedModel
from hookspecs.contracts.worker import Worker
from hookspecs.errors import (
    ConfigError,
    FrameworkError,
    ModelNotFoundError,
    ProviderError,
    ProviderNotFoundError,
    UnsupportedModelError,
)

__all__ = ["choose_loader", "choose_worker", "resolve_model", "with_worker_hint"]

logger = logging.getLogger("framework.core")


def resolve_model(plugins: PluginManager, progress: Callable[[str, float], None]) -> ResolvedModel:
    """Ask the configured source, or the first whose `matches` says that the name is its own:
    built-in sources before others. A source that can not even say so is left out, with a
    warning."""
    model = plugins.config.model
    if model.source != "auto":
        source = plugins.create("model_source", model.source, progress=progress)
        return _resolve(plugins, model.source, source)
    found = plugins.providers("model_source")
    found.sort(key=lambda registered: registered.ref.source is not Source.BUILTIN)
    names = [registered.provider.name for registered in found]
    for name in names:
        try:
            source = plugins.try_out("model_source", name, progress=progress)
            matches = source.matches(model.name)
        except Exception as error:
            logger.warning("model source %r is not asked: %s", name, describe(error))
            continue
        if matches:
            plugins.mark_used("model_source", name)
            return _resolve(plugins, name, source)
    raise ModelNotFoundError(
        f"no model source takes model.name = {model.name!r}; asked were {', '.join(names)}. Give "
        "a local directory, a hub name, package:NAME, or the path of a .gguf file"
    )


def _resolve(plugins: PluginManager, name: str, source: ModelSource) -> ResolvedModel:
    model = plugins.config.model
    try:
        return source.resolve(model.name, model.revision)
    except FrameworkError:
        raise
    except Exception as error:
        ref = plugins.resolve("model_source", name).ref
        raise ProviderError(
            f"model source {name!r} of {ref} could not resolve {model.name!r}: {describe(error)}",
            plugin=ref.name,
            distribution=ref.distribution,
        ) from error


def choose_worker(plugins: PluginManager) -> str:
    """The configured worker, or the one that rates this machine highest."""
    configured: str = plugins.config.executor.worker
    if configured != "auto":
        return configured
    rated: list[tuple[int, str]] = []
    for registered in plugins.providers("worker"):
        name = registered.provider.name
        if not _may_be_chosen(plugins, registered):
            continue
        try:
            rating = cast(type[Worker], import_target(registered)).rate()
        except Exception as error:
            logger.warning("worker %r is not considered: %s", name, error)
            continue
        rated.append((rating, name))
    best = max(rated, default=(0, ""))
    if best[0] <= 0:
        raise ProviderNotFoundError(
            "executor.worker is auto, but no worker suits this machine; installed are "
            f"{', '.join(name for _, name in rated) or 'none'}. Name one to force it"
        )
    return best[1]


def choose_loader(
    plugins: PluginManager,
    model: ResolvedModel,
    *,
    dtype: str,
    device: str,
    report: Callable[[str], None],
) -> str:
    """The configured model loader, or the one that rates this model highest; of equals the first
    by name. Says which, and why not the others. UnsupportedModelError when none takes it;
    ConfigError when one would without `model.quantization`."""
    settings = plugins.config.model
    if settings.loader != "auto":
        return settings.loader
    rated: dict[str, int] = {}
    declined: list[str] = []
    quantizing: list[RegisteredProvider] = []
    for registered in plugins.providers("model_loader"):
        name = registered.provider.name
        if not _may_be_chosen(plugins, registered):
            continue
        if (
            settings.quantization is not None
            and LoaderCapability.QUANTIZATION not in registered.provider.capabilities
        ):
            declined.append(f"{name!r}: does not declare {LoaderCapability.QUANTIZATION}")
            continue
        quantizing.append(registered)
        try:
            rating = cast(type[ModelLoader], import_target(registered)).rate(
                model, dtype=dtype, device=device, quantization=settings.quantization
            )
            suits = rating > 0
        except UnsupportedModelError as error:
            declined.append(f"{name!r}: {str(error).rstrip('.')}")
            continue
        except Exception as error:
            logger.warning("model loader %r is not considered: %s", name, describe(error))
            declined.append(f"{name!r}: {describe(error)}")
            continue
        if suits:
            rated[name] = rating
        else:
            declined.append(f"{name!r}: rates it {rating}")
    if not rated:
        without = {"dtype": dtype, "device": device, "quantization": None}
        if settings.quantization is not None and any(
            _takes(registered, model, without) for registered in quantizing
        ):
            raise ConfigError(
                f"model.quantization is {settings.quantization!r}, which no model loader has for "
                f"model {model.name!r}: {'; '.join(declined)}. Choose another one, or leave it "
                "unset"
            )
        advice = (
            "Name one to force it (model.loader)"
            if settings.quantization is None
            else "Choose another model.quantization, or none"
        )
        raise UnsupportedModelError(
            f"model.loader is auto, but no model loader takes model {model.name!r} as {dtype} on "
            f"{device or 'this device'}: {'; '.join(declined) or 'none may be chosen'}. {advice}"
        )
    best = min(rated, key=lambda name: (-rated[name], name))
    report(f"model loader {best!r}" + (f"; not {'; '.join(declined)}" if declined else ""))
    return best


def _takes(registered: RegisteredProvider, model: ResolvedModel, how: dict[str, Any]) -> bool:
    """Whether the loader would serve the model so."""
    try:
        return cast(type[ModelLoader], import_target(registered)).rate(model, **how) > 0
    except Exception:  # it has given its reason already
        return False


def _may_be_chosen(plugins: PluginManager, registered: RegisteredProvider) -> bool:
    """Installed is not selected: a third-party provider takes part in `auto` when its plugin is
    enabled by name, or was given to `launch`."""
    ref = registered.ref
    return ref.source is not Source.ENTRY_POINT or ref.name in plugins.config.plugins.enable


def with_worker_hint(said: str, plugins: PluginManager, worker: str) -> str:
    """The message that `worker` could not start, with the worker to name instead where `auto` chose
    it and the plugin that the model comes from has one of its own."""
    config = plugins.config
    if config.executor.worker != "auto":
        return said
    own = {each.ref.name: each.provider.name for each in plugins.providers("worker")}
    for found in plugins.providers("model_source"):
        plugin, name = found.ref.name, found.provider.name
        if own.get(plugin) in (None, worker) or config.model.source not in ("auto", name):
            continue
        with contextlib.suppress(Exception):  # there is an error to tell already
            if plugins.try_out("model_source", name).matches(config.model.name):
                return (
                    f"{said.rstrip('.')}. The model comes from plugin {plugin!r}, which has a "
                    f"worker of its own: set executor.worker to {own[plugin]!r}"
                )
    return said
