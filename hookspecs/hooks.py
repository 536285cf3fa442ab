"""The hook specification: everything the kernel asks and tells plugins.

The verb of a hook's name tells its kind: `register_*` offers providers, a phase name is a step
hook, `adjust_*` filters a value, `on_*_<participle>` observes. A plugin implements the hooks it
wants, marked with `hookimpl`; it may derive from `EngineHooks`, so that a type checker checks
their signatures.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any, Self

from hookspecs.contracts.base import PluginContext
from hookspecs.events import (
    CacheReset,
    ConfigResolved,
    EngineFailed,
    EngineStarted,
    EngineStopping,
    OutputReady,
    PluginFailed,
    RequestAdmitted,
    RequestFinished,
    RequestReceived,
    RequestRejected,
    StepFinished,
    WorkerReady,
)
from hookspecs.info import Activation, HookKind, ProcessRole, Provider, Tier
from hookspecs.markers import hookspec
from hookspecs.types.columns import Int32Column
from hookspecs.types.step import GrammarOutput, ModelRunnerOutput, SchedulerOutput

__all__ = ["EngineHooks"]

Providers = Iterable[Provider[Any]]


class EngineHooks:
    """All hooks. Metadata (kind, processes, since, tier) is in each one's decorator."""

    def configured(self, context: PluginContext) -> Self:
        """The object whose observers, filters and wrappers are called: this one, or a new one of
        its class that has its options and the state of one engine.

        Not a hook; called where observers, filters or wrappers of the plugin take part, in each
        process and for each engine that `launch` makes there, before any of them; in the launcher
        before `adjust_config`, and once more with what that made of the configuration. Also for
        commands that start no engine: it opens no file and starts no thread. Raising stops the
        start. A class that does not derive from `EngineHooks` may have it as well.
        """
        return self

    # Providers: what a plugin offers. Nothing is constructed.

    @hookspec(
        kind=HookKind.PROVIDER,
        roles=(ProcessRole.CORE,),
        contract="Scheduler",
    )
    def register_schedulers(self) -> Providers:
        """Offer schedulers: who runs, and how much of each, in a step."""
        return ()

    @hookspec(
        kind=HookKind.PROVIDER,
        roles=(ProcessRole.CORE,),
        contract="SchedulingPolicy",
    )
    def register_scheduling_policies(self) -> Providers:
        """Offer scheduling policies: order, admission, victims, caps."""
        return ()

    @hookspec(
        kind=HookKind.PROVIDER,
        roles=(ProcessRole.CORE,),
        contract="KVCacheManager",
    )
    def register_kv_cache_managers(self) -> Providers:
        """Offer KV cache managers: blocks and shared prefixes."""
        return ()

    @hookspec(
        kind=HookKind.PROVIDER,
        roles=(ProcessRole.CORE,),
        contract="EvictionPolicy",
    )
    def register_eviction_policies(self) -> Providers:
        """Offer eviction policies: which unused cached block is given up."""
        return ()

    @hookspec(
        kind=HookKind.PROVIDER,
        roles=(
            ProcessRole.CORE,
            ProcessRole.WORKER,
        ),
        contract="KVConnector",
        tier=Tier.PROVISIONAL,
    )
    def register_kv_connectors(self) -> Providers:
        """Offer KV connectors: blocks from and to other engines and tiers.

        Not used by this version: what is offered is listed, and nothing more.
        """
        return ()

    @hookspec(
        kind=HookKind.PROVIDER,
        roles=(ProcessRole.CORE,),
        contract="Executor",
    )
    def register_executors(self) -> Providers:
        """Offer executors: run workers and hand them steps."""
        return ()

    @hookspec(
        kind=HookKind.PROVIDER,
        roles=(
            ProcessRole.CORE,
            ProcessRole.WORKER,
        ),
        contract="Worker",
    )
    def register_workers(self) -> Providers:
        """Offer workers: own a device and run the model on it."""
        return ()

    @hookspec(
        kind=HookKind.PROVIDER,
        roles=(ProcessRole.WORKER,),
        contract="AttentionBackend",
    )
    def register_attention_backends(self) -> Providers:
        """Offer attention backends over the paged cache."""
        return ()

    @hookspec(
        kind=HookKind.PROVIDER,
        roles=(ProcessRole.LAUNCHER,),
        contract="ModelSource",
    )
    def register_model_sources(self) -> Providers:
        """Offer model sources: a model's name to its files."""
        return ()

    @hookspec(
        kind=HookKind.PROVIDER,
        roles=(
            ProcessRole.CORE,
            ProcessRole.WORKER,
        ),
        contract="ModelLoader",
    )
    def register_model_loaders(self) -> Providers:
        """Offer model loaders: files to a module."""
        return ()

    @hookspec(
        kind=HookKind.PROVIDER,
        roles=(ProcessRole.WORKER,),
        contract="Sampler",
    )
    def register_samplers(self) -> Providers:
        """Offer samplers: logits to tokens."""
        return ()

    @hookspec(
        kind=HookKind.PROVIDER,
        roles=(
            ProcessRole.FRONTEND,
            ProcessRole.WORKER,
        ),
        contract="LogitsProcessor",
    )
    def register_logits_processors(self) -> Providers:
        """Offer logits processors: a request's own rule for its logits."""
        return ()

    @hookspec(
        kind=HookKind.PROVIDER,
        roles=(
            ProcessRole.FRONTEND,
            ProcessRole.CORE,
        ),
        contract="GrammarBackend",
        tier=Tier.PROVISIONAL,
    )
    def register_grammar_backends(self) -> Providers:
        """Offer grammar backends for structured output.

        Not used by this version: what is offered is listed, and nothing more.
        """
        return ()

    @hookspec(
        kind=HookKind.PROVIDER,
        roles=(ProcessRole.WORKER,),
        contract="DraftProposer",
        tier=Tier.PROVISIONAL,
    )
    def register_draft_proposers(self) -> Providers:
        """Offer draft proposers for speculative decoding.

        Not used by this version: what is offered is listed, and nothing more.
        """
        return ()

    @hookspec(
        kind=HookKind.PROVIDER,
        roles=(ProcessRole.LAUNCHER,),
        contract="Coordinator",
        tier=Tier.PROVISIONAL,
    )
    def register_coordinators(self) -> Providers:
        """Offer coordinators of data-parallel engines.

        Not used by this version: what is offered is listed, and nothing more.
        """
        return ()

    @hookspec(
        kind=HookKind.PROVIDER,
        roles=(ProcessRole.FRONTEND,),
        contract="LoadBalancer",
        tier=Tier.PROVISIONAL,
    )
    def register_load_balancers(self) -> Providers:
        """Offer load balancers over data-parallel engines.

        Not used by this version: what is offered is listed, and nothing more.
        """
        return ()

    @hookspec(
        kind=HookKind.PROVIDER,
        roles=(ProcessRole.FRONTEND,),
        contract="StatLogger",
    )
    def register_stat_loggers(self) -> Providers:
        """Offer stat loggers."""
        return ()

    @hookspec(
        kind=HookKind.PROVIDER,
        roles=(ProcessRole.FRONTEND,),
        contract="Tracer",
    )
    def register_tracers(self) -> Providers:
        """Offer tracers."""
        return ()

    @hookspec(
        kind=HookKind.PROVIDER,
        roles=(ProcessRole.CORE,),
        contract="KVEventPublisher",
        tier=Tier.PROVISIONAL,
    )
    def register_kv_event_publishers(self) -> Providers:
        """Offer publishers of KV cache events.

        Not used by this version: what is offered is listed, and nothing more.
        """
        return ()

    @hookspec(
        kind=HookKind.PROVIDER,
        roles=(ProcessRole.FRONTEND,),
        contract="Frontend",
        activation=Activation.LISTED,
    )
    def register_frontends(self) -> Providers:
        """Offer front ends: servers that take requests."""
        return ()

    @hookspec(
        kind=HookKind.PROVIDER,
        roles=(ProcessRole.FRONTEND,),
        contract="HttpRoutes",
        activation=Activation.LISTED,
    )
    def register_http_routes(self) -> Providers:
        """Offer HTTP routes beside those of the front end."""
        return ()

    @hookspec(
        kind=HookKind.PROVIDER,
        roles=(ProcessRole.LAUNCHER,),
        contract="CliCommand",
    )
    def register_cli_commands(self) -> Providers:
        """Offer commands of the command line."""
        return ()

    @hookspec(
        kind=HookKind.PROVIDER,
        roles=(ProcessRole.CORE,),
        contract="EngineCommand",
        activation=Activation.LISTED,
    )
    def register_engine_commands(self) -> Providers:
        """Offer commands that front ends may run on an engine core."""
        return ()

    @hookspec(
        kind=HookKind.PROVIDER,
        roles=(
            ProcessRole.CORE,
            ProcessRole.WORKER,
        ),
        contract="SideChannel",
    )
    def register_side_channels(self) -> Providers:
        """Offer side channels: a message between core and workers with each step."""
        return ()

    @hookspec(
        kind=HookKind.PROVIDER,
        roles=(ProcessRole.FRONTEND,),
        contract="ToolParser",
        tier=Tier.PROVISIONAL,
    )
    def register_tool_parsers(self) -> Providers:
        """Offer tool-call parsers.

        Not used by this version: what is offered is listed, and nothing more.
        """
        return ()

    @hookspec(
        kind=HookKind.PROVIDER,
        roles=(ProcessRole.FRONTEND,),
        contract="ReasoningParser",
        tier=Tier.PROVISIONAL,
    )
    def register_reasoning_parsers(self) -> Providers:
        """Offer reasoning parsers.

        Not used by this version: what is offered is listed, and nothing more.
        """
        return ()

    # Step phases: one call each a step. The selected object implements them; a plugin whose
    # `PluginInfo.provides` has `wrap:<phase>` may wrap them with `hookimpl(wrapper=True)`.

    @hookspec(kind=HookKind.STEP, roles=(ProcessRole.CORE,), hot=True)
    def schedule(self) -> SchedulerOutput:
        """The scheduler decides the step. The result is checked by the kernel afterwards."""
        raise NotImplementedError

    @hookspec(kind=HookKind.STEP, roles=(ProcessRole.CORE,), hot=True)
    def execute_model(self, scheduled: SchedulerOutput) -> Future[None]:
        """The executor launches the forward of the step."""
        raise NotImplementedError

    @hookspec(kind=HookKind.STEP, roles=(ProcessRole.CORE,), hot=True)
    def sample_tokens(self, grammar: GrammarOutput | None) -> Future[ModelRunnerOutput]:
        """The executor samples from the oldest forward."""
        raise NotImplementedError

    @hookspec(kind=HookKind.STEP, roles=(ProcessRole.CORE,), hot=True)
    def update_from_output(self, scheduled: SchedulerOutput, applied: Int32Column) -> None:
        """The scheduler settles its accounts after the kernel applied the step's tokens.

        `applied` holds the slots of the step that still run.
        """
        raise NotImplementedError

    # Filters: a value passes through all of them in order. Return a new event to change it,
    # None to leave it as it is.

    @hookspec(kind=HookKind.FILTER, roles=(ProcessRole.LAUNCHER,))
    def adjust_config(self, event: ConfigResolved) -> ConfigResolved | None:
        """The configuration was read, once, before anything is made from it.

        Raising stops the start: with an error of `hookspecs.errors` as it is, with any other as
        PluginError.
        """
        return None

    @hookspec(
        kind=HookKind.FILTER,
        roles=(ProcessRole.FRONTEND,),
        activation=Activation.LISTED,
    )
    def adjust_request(self, event: RequestReceived) -> RequestReceived | RequestRejected | None:
        """A validated request is about to be sent to an engine core.

        Returning RequestRejected refuses it; raising fails it. Other requests go on.
        """
        return None

    @hookspec(
        kind=HookKind.FILTER,
        roles=(ProcessRole.FRONTEND,),
        activation=Activation.LISTED,
    )
    def adjust_output(self, event: OutputReady) -> OutputReady | None:
        """An output is about to be given to its user. Raising fails that request.

        The request id, `finished`, and the indexes and finish reasons of its outputs must stay;
        changing one of them, also in place, fails the request too.
        """
        return None

    # Observers: told what happened. The result is ignored; an exception is logged and counted,
    # and after repeated failures the observer is removed from that hook.

    @hookspec(kind=HookKind.OBSERVER, roles=tuple(ProcessRole))
    def on_plugin_failed(self, event: PluginFailed) -> None:
        """A plugin raised in a hook. Not called for failures of this hook itself."""

    @hookspec(kind=HookKind.OBSERVER, roles=(ProcessRole.CORE,))
    def on_engine_started(self, event: EngineStarted) -> None:
        """An engine core is ready for requests."""

    @hookspec(kind=HookKind.OBSERVER, roles=(ProcessRole.CORE,))
    def on_engine_stopping(self, event: EngineStopping) -> None:
        """An engine core is about to stop in an orderly way."""

    @hookspec(kind=HookKind.OBSERVER, roles=(ProcessRole.CORE,))
    def on_engine_failed(self, event: EngineFailed) -> None:
        """An engine core stops because of an error."""

    @hookspec(kind=HookKind.OBSERVER, roles=(ProcessRole.WORKER,))
    def on_worker_ready(self, event: WorkerReady) -> None:
        """A worker has loaded its model and allocated its cache."""

    @hookspec(kind=HookKind.OBSERVER, roles=(ProcessRole.CORE,))
    def on_request_admitted(self, event: RequestAdmitted) -> None:
        """A request was scheduled for the first time."""

    @hookspec(kind=HookKind.OBSERVER, roles=(ProcessRole.CORE,))
    def on_request_finished(self, event: RequestFinished) -> None:
        """A request ended in the engine core, exactly once a request."""

    @hookspec(kind=HookKind.OBSERVER, roles=(ProcessRole.CORE,), hot=True)
    def on_step_finished(self, event: StepFinished) -> None:
        """A step ran and its tokens were applied. One event a step, whatever its size."""

    @hookspec(kind=HookKind.OBSERVER, roles=(ProcessRole.CORE,))
    def on_cache_reset(self, event: CacheReset) -> None:
        """The prefix cache was reset."""
