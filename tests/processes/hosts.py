"""Engine cores and front ends put together by hand, in numbers that a launch does not offer."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from framework.client.asynchronous import AsyncClient
from framework.client.links import EngineLinks
from framework.config import load_config
from framework.core.choice import resolve_model
from framework.core.info import EngineInfo
from framework.frontend.async_llm import AsyncLLM
from framework.frontend.service_info import PluginView
from framework.launcher.host import EngineHost
from framework.launcher.parts import FrontEndParts, early_parts
from framework.launcher.sync import no_progress
from framework.plugins.manager import PluginManager
from framework.process.supervisor import StartUp
from tests.processes.plugins_for_tests import drill

__all__ = ["Linked", "front_end", "hosted"]


class Linked(NamedTuple):
    """One front end's connection to all engine cores."""

    links: EngineLinks
    info: EngineInfo
    parts: FrontEndParts


@contextlib.contextmanager
def hosted(
    settings: Mapping[str, Any],
    *,
    num_engines: int = 1,
    front_ends: int = 1,
    plugins: Sequence[object] = (),
) -> Iterator[tuple[EngineHost, list[Linked]]]:
    """Running engine cores, and the links of each front end."""
    manager = PluginManager.build(load_config(settings).config, objects=[drill, *plugins])
    model = resolve_model(manager, no_progress)
    with contextlib.ExitStack() as undo:
        host = EngineHost(manager, model, num_engines=num_engines)
        undo.callback(host.close)
        all_links = [host.link(index) for index in range(front_ends)]

        def died(engine_index: int, reason: str) -> None:
            for links in all_links:
                links.mark_dead(engine_index, reason)

        host.start([links.address for links in all_links], died)
        host.wait_ready(StartUp(lambda line: None, no_progress))
        parts = early_parts(manager, model, undo)
        yield host, [Linked(links, links.wait_for_engines(), parts) for links in all_links]


@contextlib.asynccontextmanager
async def front_end(
    linked: Linked, *, num_engines: int = 1, client_index: int = 0
) -> AsyncIterator[tuple[AsyncLLM, AsyncClient]]:
    """The front object over a connection."""
    links, info, parts = linked
    client = AsyncClient(links, info, num_engines=num_engines)
    engine = AsyncLLM(
        client,
        *parts.processors(info, client_index=client_index),
        parts.stat_loggers,
        parts.tracers,
        PluginView(parts.plugins),
    )
    async with engine:
        yield engine, client
