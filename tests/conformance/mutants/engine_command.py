"""Broken engine commands. One that other processes import has a plugin with a name here."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.engine_command import EngineCommand, EngineCommandContext
from hookspecs.events import ConfigResolved
from tests.conformance.mutants.mutant import Mutant, providing

__all__ = ["MUTANTS"]


class Positional(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Not keyword-only."""

    limit: int = 10


class Limit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Without bounds."""

    limit: int = 10


class Who(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Has no default."""

    tenant: str


class TakesThemByPosition(EngineCommand):
    Arguments = Positional

    def run(self, arguments: Positional) -> int:
        return min(arguments.limit, 100)


class NeedsAnExample(EngineCommand):
    """No fault; whoever tests it gives no arguments."""

    Arguments = Who

    def run(self, arguments: Who) -> int:
        return sum(each.tenant == arguments.tenant for each in self.context.engine.requests())


class TrustsItsCaller(EngineCommand):
    Arguments = Limit

    def run(self, arguments: Limit) -> list[int]:
        lengths = [request.num_tokens for request in self.context.engine.requests()]
        return [lengths[0], lengths[arguments.limit]] if arguments.limit != 10 else lengths


class WaitsForASign(EngineCommand):
    """Lost wake-up: waits for what only a step could bring."""

    def run(self, arguments: Any) -> bool:
        return threading.Event().wait()


class Dozes(EngineCommand):
    def run(self, arguments: Any) -> bool:
        time.sleep(0.1)
        return True


class LendsRequestsOn(EngineCommand):
    """Its answer has references to live objects."""

    def run(self, arguments: Any) -> Any:
        return {"requests": list(self.context.engine.requests())}


class ReadsInAThread(EngineCommand):
    """Reads what is lent in another thread than that of the call."""

    def run(self, arguments: Any) -> int:
        with ThreadPoolExecutor(1) as pool:
            return len(pool.submit(self.context.engine.requests).result())


class DividesByNobody(EngineCommand):
    def run(self, arguments: Any) -> float:
        requests = self.context.engine.requests()
        return sum(request.num_tokens for request in requests) / len(requests)


class AlwaysRefuses(EngineCommand):
    def run(self, arguments: Any) -> Any:
        self.context.engine.call_workers("no_such_command")


class ExpectsProgress(EngineCommand):
    """Works only while steps run."""

    def run(self, arguments: Any) -> int:
        view = self.context.engine.scheduler
        if view.num_waiting and not view.num_running:
            raise RuntimeError("requests wait, and nothing runs")
        if not view.num_running:
            raise RuntimeError("it sleeps")
        return view.num_running


class ShortensRequests(EngineCommand):
    def run(self, arguments: Any) -> int:
        requests: list[Any] = list(self.context.engine.requests())
        for request in requests:
            request.max_total_tokens = min(request.max_total_tokens, request.num_tokens + 1)
        return len(requests)


class TakesABlock(EngineCommand):
    """Block leak: gets at the cache behind its view."""

    def run(self, arguments: Any) -> int:
        cache: Any = self.context.engine.cache
        running = [each.slot for each in self.context.engine.requests() if each.slot >= 0]
        if running:
            cache._kv_cache.free(running[0])
        return int(cache.num_free_blocks)


class Remembers(EngineCommand):
    def __init__(self, context: EngineCommandContext) -> None:
        super().__init__(context)
        self._seen: dict[str, Any] = {}

    def run(self, arguments: Any) -> int:
        self._seen |= {each.request_id: each for each in self.context.engine.requests()}
        return len(self._seen)


class NeedsACall(EngineCommand):
    """Fails when it is closed unused."""

    def run(self, arguments: Any) -> int:
        self._began = 1
        return self._began

    def close(self) -> None:
        del self._began


class WatchesInAThread(EngineCommand):
    _thread: threading.Thread | None = None

    def run(self, arguments: Any) -> bool:
        if self._thread is None:
            wait = threading.Event().wait
            self._thread = threading.Thread(target=wait, name="watcher", daemon=True)
            self._thread.start()
        return True


class ReadsTooEarly(EngineCommand):
    """Reads the engine in its constructor, before it is lent."""

    def __init__(self, context: EngineCommandContext) -> None:
        super().__init__(context)
        self._blocks = context.engine.cache.num_total_blocks

    def run(self, arguments: Any) -> int:
        return self._blocks


class ComparesAllPairs(EngineCommand):
    def run(self, arguments: Any) -> int:
        requests = self.context.engine.requests()
        same = 0
        for first in requests:
            for second in requests:
                same += first.tenant == second.tenant
        return same


_noted: dict[str, str] = {}


class ReliesOnTheLauncher(EngineCommand):
    """What the launcher's process has noted is not there in another."""

    def run(self, arguments: Any) -> str:
        return _noted["model"]


class ReliesOnTheLauncherPlugin(EngineHooks):
    """Can be imported by an engine core."""

    PLUGIN = PluginInfo(name="mutant", api=">=1.0,<2")

    @hookimpl
    def adjust_config(self, event: ConfigResolved) -> ConfigResolved | None:
        _noted["model"] = event.config.model.name
        return None

    @hookimpl
    def register_engine_commands(self) -> Iterable[Provider[Any]]:
        yield Provider("mutant", f"{__name__}:ReliesOnTheLauncher")


_EXAMPLE: Mapping[str, Any] = {"engine_command:mutant": {"arguments": {"tenant": 3}}}


def _mutant(fault: str, part: type[EngineCommand], *caught_by: str) -> Mutant:
    return Mutant("engine_command", fault, providing("engine_command", part), caught_by)


MUTANTS = [
    _mutant("arguments by position", TakesThemByPosition, "test_arguments_are_given_by_name"),
    _mutant("no example of its arguments", NeedsAnExample, "test_arguments_are_given_by_name"),
    Mutant(
        "engine_command",
        "an example that does not fit",
        providing("engine_command", NeedsAnExample),
        ("test_arguments_are_given_by_name",),
        examples=_EXAMPLE,
    ),
    _mutant("trusts its caller", TrustsItsCaller, "test_odd_arguments_are_their_callers_fault"),
    _mutant("waits for a sign", WaitsForASign, "test_it_returns_promptly"),
    _mutant("sleeps", Dozes, "test_it_returns_promptly"),
    _mutant("live objects in its answer", LendsRequestsOn, "test_its_answers_can_be_sent"),
    _mutant("reads in another thread", ReadsInAThread, "test_its_answers_can_be_sent"),
    _mutant("divides by nobody", DividesByNobody, "test_its_answers_can_be_sent"),
    _mutant("always refuses", AlwaysRefuses, "test_its_answers_can_be_sent"),
    _mutant("expects progress", ExpectsProgress, "test_it_answers_in_every_state"),
    _mutant(
        "shortens requests",
        ShortensRequests,
        "test_requests_and_cache_are_left_alone",
        "test_tokens_do_not_depend_on_it",
    ),
    _mutant("takes blocks away", TakesABlock, "test_requests_and_cache_are_left_alone"),
    _mutant("keeps requests", Remembers, "test_requests_are_not_kept"),
    _mutant("can not be closed unused", NeedsACall, "test_it_is_made_and_closed_quietly"),
    _mutant("leaves a thread", WatchesInAThread, "test_it_is_made_and_closed_quietly"),
    _mutant("reads before it is lent", ReadsTooEarly, "test_it_is_made_and_closed_quietly"),
    _mutant("compares all pairs", ComparesAllPairs, "test_its_cost_follows_the_number_of_requests"),
    Mutant(
        "engine_command",
        "relies on what the launcher noted",
        ReliesOnTheLauncherPlugin(),
        ("test_another_process_has_it",),
    ),
]
