"""`Detached`: a plugin that notes whom the kernel took away because they raised."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, cast

from framework.conformance.subject import Subject
from framework.conformance.worlds.engines import greedy, run_prompts
from hookspecs import PluginInfo, hookimpl
from hookspecs.events import PluginFailed
from hookspecs.types.outputs import RequestOutput

__all__ = ["Detached", "used_in_an_engine"]

Tokens = list[tuple[list[int], str | None]]


class Detached:
    """Observes failures."""

    PLUGIN = PluginInfo(name="conformance-detached", api=">=1.0,<2")

    def __init__(self) -> None:
        self.failures: list[PluginFailed] = []

    @hookimpl
    def on_plugin_failed(self, event: PluginFailed) -> None:
        """See EngineHooks."""
        self.failures.append(event)


def used_in_an_engine(subject: Subject, **sections: Any) -> tuple[Tokens, list[PluginFailed]]:
    """What requests get in an engine that ends some in each way, and what failed until after it
    was shut down."""
    watcher = Detached()
    with subject.launch(beside=[watcher], cache={"num_blocks": 12}, **sections) as engine:
        tokens = run_prompts(engine, 3)
        stream = cast("Generator[RequestOutput]", engine.stream([1, 2, 3], greedy(20)))
        next(stream)
        stream.close()
        failing = greedy(4, extensions={"scripted": {"fail_at": 1}})
        list(engine.generate([[1, 2], [3, 4]], [failing, greedy(2, n=3, temperature=1.0, seed=1)]))
        tokens += run_prompts(engine, 4)
    return tokens, watcher.failures
