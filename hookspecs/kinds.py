"""The plugin kinds: one row for each provider hook, with its contract and config setting."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import msgspec

from hookspecs.contracts.attention import AttentionBackend, AttentionCapability, AttentionContext
from hookspecs.contracts.base import Context
from hookspecs.contracts.draft import DraftCapability, DraftContext, DraftProposer
from hookspecs.contracts.engine_command import EngineCommand, EngineCommandContext
from hookspecs.contracts.executor import Executor, ExecutorCapability, ExecutorContext
from hookspecs.contracts.frontend import (
    CliCommand,
    CliContext,
    Frontend,
    FrontendContext,
    HttpRoutes,
    HttpRoutesContext,
)
from hookspecs.contracts.grammar import GrammarBackend, GrammarCapability, GrammarContext
from hookspecs.contracts.kv_cache import (
    EvictionContext,
    EvictionPolicy,
    KVCacheCapability,
    KVCacheContext,
    KVCacheManager,
)
from hookspecs.contracts.kv_connector import (
    KVConnector,
    KVConnectorCapability,
    KVConnectorContext,
)
from hookspecs.contracts.logits import (
    LogitsProcessor,
    LogitsProcessorContext,
    Sampler,
    SamplerContext,
)
from hookspecs.contracts.model import (
    LoaderCapability,
    ModelLoader,
    ModelLoaderContext,
    ModelSource,
    ModelSourceContext,
)
from hookspecs.contracts.parallel import (
    BalancerCapability,
    Coordinator,
    CoordinatorContext,
    LoadBalancer,
    LoadBalancerContext,
)
from hookspecs.contracts.parsers import ParserContext, ReasoningParser, ToolParser
from hookspecs.contracts.policy import PolicyCapability, PolicyContext, SchedulingPolicy
from hookspecs.contracts.scheduler import Scheduler, SchedulerCapability, SchedulerContext
from hookspecs.contracts.side_channel import SideChannel, SideChannelContext
from hookspecs.contracts.stats import (
    KVEventPublisher,
    KVEventPublisherContext,
    StatLogger,
    StatLoggerContext,
    Tracer,
    TracerContext,
)
from hookspecs.contracts.worker import Worker, WorkerCapability, WorkerContext

__all__ = ["PLUGIN_KINDS", "PluginKind"]


class PluginKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of thing a plugin can provide."""

    name: str
    """Singular, e.g. `scheduler`."""
    hook: str
    """The provider hook."""
    contract: type[Any]
    context: type[Context]
    capabilities: type[StrEnum] | None = None
    """The closed set of capabilities."""
    setting: str | None = None
    """Where the configuration selects it, e.g. `scheduler.name`; None: another way."""


def _kind(
    name: str,
    hook: str,
    contract: type[Any],
    context: type[Context],
    capabilities: type[StrEnum] | None = None,
    setting: str | None = None,
) -> PluginKind:
    return PluginKind(
        name=name,
        hook=hook,
        contract=contract,
        context=context,
        capabilities=capabilities,
        setting=setting,
    )


PLUGIN_KINDS: Final[dict[str, PluginKind]] = {
    kind.name: kind
    for kind in (
        _kind(
            "scheduler",
            "register_schedulers",
            Scheduler,
            SchedulerContext,
            SchedulerCapability,
            "scheduler.name",
        ),
        _kind(
            "scheduling_policy",
            "register_scheduling_policies",
            SchedulingPolicy,
            PolicyContext,
            PolicyCapability,
            "scheduler.policies",
        ),
        _kind(
            "kv_cache_manager",
            "register_kv_cache_managers",
            KVCacheManager,
            KVCacheContext,
            KVCacheCapability,
            "cache.manager",
        ),
        _kind(
            "eviction_policy",
            "register_eviction_policies",
            EvictionPolicy,
            EvictionContext,
            None,
            "cache.eviction",
        ),
        _kind(
            "kv_connector",
            "register_kv_connectors",
            KVConnector,
            KVConnectorContext,
            KVConnectorCapability,
            "kv_transfer.connectors",
        ),
        _kind(
            "executor",
            "register_executors",
            Executor,
            ExecutorContext,
            ExecutorCapability,
            "executor.name",
        ),
        _kind(
            "worker",
            "register_workers",
            Worker,
            WorkerContext,
            WorkerCapability,
            "executor.worker",
        ),
        _kind(
            "attention_backend",
            "register_attention_backends",
            AttentionBackend,
            AttentionContext,
            AttentionCapability,
            "executor.attention",
        ),
        _kind(
            "model_source",
            "register_model_sources",
            ModelSource,
            ModelSourceContext,
            None,
            "model.source",
        ),
        _kind(
            "model_loader",
            "register_model_loaders",
            ModelLoader,
            ModelLoaderContext,
            LoaderCapability,
            "model.loader",
        ),
        _kind("sampler", "register_samplers", Sampler, SamplerContext, None, "executor.sampler"),
        _kind(
            "logits_processor",
            "register_logits_processors",
            LogitsProcessor,
            LogitsProcessorContext,
        ),
        _kind(
            "grammar_backend",
            "register_grammar_backends",
            GrammarBackend,
            GrammarContext,
            GrammarCapability,
        ),
        _kind(
            "draft_proposer",
            "register_draft_proposers",
            DraftProposer,
            DraftContext,
            DraftCapability,
        ),
        _kind(
            "coordinator",
            "register_coordinators",
            Coordinator,
            CoordinatorContext,
            None,
            "parallel.coordinator",
        ),
        _kind(
            "load_balancer",
            "register_load_balancers",
            LoadBalancer,
            LoadBalancerContext,
            BalancerCapability,
            "parallel.balancer",
        ),
        _kind(
            "stat_logger",
            "register_stat_loggers",
            StatLogger,
            StatLoggerContext,
            None,
            "stats.loggers",
        ),
        _kind("tracer", "register_tracers", Tracer, TracerContext, None, "stats.tracers"),
        _kind(
            "kv_event_publisher",
            "register_kv_event_publishers",
            KVEventPublisher,
            KVEventPublisherContext,
        ),
        _kind(
            "frontend",
            "register_frontends",
            Frontend,
            FrontendContext,
            None,
            "serving.frontend",
        ),
        _kind("http_routes", "register_http_routes", HttpRoutes, HttpRoutesContext),
        _kind("cli_command", "register_cli_commands", CliCommand, CliContext),
        _kind(
            "engine_command",
            "register_engine_commands",
            EngineCommand,
            EngineCommandContext,
        ),
        _kind(
            "side_channel",
            "register_side_channels",
            SideChannel,
            SideChannelContext,
            None,
            "engine.side_channels",
        ),
        _kind("tool_parser", "register_tool_parsers", ToolParser, ParserContext),
        _kind("reasoning_parser", "register_reasoning_parsers", ReasoningParser, ParserContext),
    )
}
