"""The plugin `attention-sdpa`: the reference attention backend, in plain torch."""

from __future__ import annotations

from collections.abc import Iterable

from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.attention import AttentionBackend, AttentionCapability

__all__ = ["SdpaAttentionPlugin", "plugin"]


class SdpaAttentionPlugin(EngineHooks):
    """Offers the attention backend `sdpa`."""

    PLUGIN = PluginInfo(
        name="attention-sdpa",
        api=">=1.0,<2",
        description="Reference attention over the paged cache, with torch operations only.",
    )

    @hookimpl
    def register_attention_backends(self) -> Iterable[Provider[AttentionBackend]]:
        yield Provider(
            "sdpa",
            "builtin_plugins.attention_sdpa.backend:SdpaAttention",
            capabilities=frozenset(AttentionCapability),
            description="Gathers keys and values, then torch's scaled_dot_product_attention.",
        )


plugin = SdpaAttentionPlugin()
