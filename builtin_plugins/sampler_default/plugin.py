"""Registers the sampler `default`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl

__all__ = ["SamplerDefaultPlugin", "plugin"]


class SamplerDefaultPlugin(EngineHooks):
    """Offers one sampler."""

    PLUGIN = PluginInfo(
        name="sampler-default",
        api=">=1.0,<2",
        description="All sampling parameters, seeded draws that do not depend on neighbours.",
    )

    @hookimpl
    def register_samplers(self) -> Iterable[Provider[Any]]:
        """The provider `default`."""
        yield Provider(
            "default",
            "builtin_plugins.sampler_default.sampler:DefaultSampler",
            description="Masks, penalties, temperature, min_p, top_k, top_p, logprobs.",
        )


plugin = SamplerDefaultPlugin()
