"""Facts of what is served, and the view of its plugins, as front ends get them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from framework.frontend.input_processor import InputProcessor
from framework.plugins.discovery import BUILTIN_DISTRIBUTION, installed_version
from framework.plugins.manager import PluginManager
from framework.plugins.report import merged_reports
from hookspecs.contracts.frontend import ServiceInfo
from hookspecs.types.stats import PluginCallStats
from hookspecs.version import API_VERSION

__all__ = ["PluginView", "service_info"]


class PluginView:
    """The plugins of this process, with what those in other processes told of themselves."""

    def __init__(self, manager: PluginManager) -> None:
        self._manager = manager

    def __call__(self, elsewhere: Sequence[PluginCallStats]) -> list[dict[str, Any]]:
        """Every plugin in plain values; counts are of all processes together."""
        reports = merged_reports(self._manager.report(), elsewhere)
        return [msgspec.to_builtins(report) for report in reports]


def service_info(inputs: InputProcessor) -> ServiceInfo:
    """Facts of the engine behind an input processor."""
    tokenizer, model, engine = inputs.tokenizer, inputs.model, inputs.engine_info
    return ServiceInfo(
        model=model.name,
        max_model_len=engine.max_model_len,
        vocab_size=model.info.vocab_size,
        hidden_size=model.info.hidden_size,
        version=installed_version(BUILTIN_DISTRIBUTION) or "unknown",
        api_version=".".join(map(str, API_VERSION)),
        started_at=int(time.time()),
        capabilities=engine.capabilities,
        has_tokenizer=tokenizer is not None,
        has_chat_template=tokenizer is not None and tokenizer.has_chat_template,
        limits=inputs.limits,
    )
