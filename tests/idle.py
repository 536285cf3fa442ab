"""What must hold of an engine when it has nothing to do."""

from __future__ import annotations

from framework.client.in_process import InProcessClient
from framework.core.engine import EngineCore
from framework.launcher import Engine

__all__ = ["assert_idle", "core_of"]


def core_of(engine: Engine) -> EngineCore:
    """The engine core behind an engine that runs in this process."""
    client = engine.engine._client
    assert isinstance(client, InProcessClient)
    return client._core


def assert_idle(engine: Engine) -> None:
    """No request, slot or block is in use or waits anywhere, and all accounts add up."""
    llm, parts = engine.engine, core_of(engine).parts
    assert llm.num_requests == 0
    assert not llm.has_unfinished_requests()
    assert core_of(engine).num_requests == 0
    assert (parts.scheduler.num_running, parts.scheduler.num_waiting) == (0, 0)
    assert parts.table.num_running == 0
    assert parts.table.num_free_slots == parts.config.scheduler.max_num_seqs
    cache = parts.kv_cache
    assert cache.blocks_in_use() == 0
    assert cache.num_free_blocks == cache.num_total_blocks
    cache.check()
