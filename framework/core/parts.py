"""`EngineParts`: what an engine core is made of, as `framework.core.setup` made it."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from framework.core.engine_view import LentEngine
from framework.core.plugin_commands import PluginCommands
from framework.core.policy_stack import PolicyStack
from framework.core.request_table import RequestTable
from framework.core.scheduler_view import SchedulerView
from framework.core.side_channels.core_side import CoreSide
from framework.plugins.calls import Calls
from hookspecs.config import EngineConfig
from hookspecs.contracts.executor import Executor
from hookspecs.contracts.kv_cache import KVCacheManager
from hookspecs.contracts.model import ResolvedModel
from hookspecs.contracts.scheduler import Scheduler

__all__ = ["EngineParts"]


class EngineParts(msgspec.Struct, frozen=True, kw_only=True):
    """The selected plugins' objects, and who provides them."""

    config: EngineConfig
    model: ResolvedModel
    max_model_len: int
    """Tokens: what the configuration, the model and the cache allow."""
    cache_tokens: int
    """Tokens that one request can hold in an empty cache."""
    table: RequestTable
    kv_cache: KVCacheManager
    scheduler: Scheduler
    policies: PolicyStack
    executor: Executor
    view: SchedulerView
    side_channels: CoreSide
    calls: Calls
    phase_plugins: dict[str, str]
    """Step phase to the plugin whose object implements it."""
    make_commands: Callable[[LentEngine], PluginCommands]
    """Makes the plugins' commands, from what they are lent of the engine."""
    plugin_of: Callable[[BaseException], str | None]
    """The plugin in whose code an exception was raised."""
    worker_capabilities: frozenset[str]
    """WorkerCapability values."""
    clock: Callable[[], float] = time.monotonic
    """Seconds; one clock for the kernel and what it lends."""
    engine_index: int = 0
