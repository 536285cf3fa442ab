"""The plugin `attention-cpu-paged`: attention on CPUs by compiled kernels."""

from __future__ import annotations

from collections.abc import Iterable

from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.attention import AttentionBackend, AttentionCapability

__all__ = ["CpuPagedAttentionPlugin", "plugin"]


class CpuPagedAttentionPlugin(EngineHooks):
    """Offers the attention backend `cpu_paged`."""

    PLUGIN = PluginInfo(
        name="attention-cpu-paged",
        api=">=1.0,<2",
        description="Attention over the paged cache on CPUs, by kernels compiled where they run.",
    )

    @hookimpl
    def register_attention_backends(self) -> Iterable[Provider[AttentionBackend]]:
        yield Provider(
            "cpu_paged",
            "builtin_plugins.attention_cpu_paged.backend:CpuPagedAttention",
            capabilities=frozenset(AttentionCapability),
            description="Compiled kernels that read the blocks in place; needs a C compiler.",
        )


plugin = CpuPagedAttentionPlugin()
