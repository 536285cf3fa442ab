"""The asynchronous client of engine cores in processes of their own.

Everything happens in the event loop's thread, but for `engine_died`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Any, Final

from framework.client.calls import merged, new_call_id, result_of
from framework.client.ledger import RequestLedger
from framework.client.links import EngineLinks
from framework.core.commands import check_arguments, command_of
from framework.core.info import EngineInfo
from framework.plugins.failure import describe
from hookspecs.errors import EngineDeadError
from hookspecs.types.commands import CommandArguments
from hookspecs.types.control import EngineHealth, EngineState
from hookspecs.types.outputs import EngineCoreOutputs, UtilityResult
from hookspecs.types.request import EngineCoreRequest, FinishReason
from hookspecs.types.stats import PluginCallStats

__all__ = ["AsyncClient"]

logger = logging.getLogger("framework.client")

_MESSAGES_AT_ONCE: Final = 16
"""Messages that are read before other tasks get their turn."""


class AsyncClient:
    """One front end's connection to its engine cores, in an event loop."""

    def __init__(self, links: EngineLinks, info: EngineInfo, *, num_engines: int) -> None:
        self.info = info
        self._links = links
        self._ledger = RequestLedger(num_engines)
        self._engines = range(num_engines)
        self._outputs: list[EngineCoreOutputs] = []
        self._calls: dict[int, asyncio.Future[UtilityResult]] = {}
        self._processing = False
        """Whether outputs were handed out and are not processed yet."""
        self._due: list[UtilityResult] = []
        """Read before the last of these outputs."""
        self._behind: list[UtilityResult] = []
        """Read since."""
        self._news = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._descriptor = links.descriptor
        """Kept: a socket that is closed does not tell it."""

    def start(self) -> None:
        """Begin to receive; in the event loop that will be used."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._on_readable)
        # What came before is not announced again.
        self._loop.call_soon(self._on_readable)

    @property
    def num_unfinished(self) -> int:
        """Engine requests that have not ended."""
        return len(self._ledger)

    @property
    def num_engines(self) -> int:
        """Engine cores, dead ones included."""
        return len(self._engines)

    @property
    def states(self) -> list[EngineState]:
        """Of each engine core, as last told."""
        return [signs.state for signs in self._links.vital_signs]

    def add_requests(self, requests: Sequence[EngineCoreRequest]) -> None:
        """Hand over requests, all to the engine core with the least to do (the n outputs of one
        prompt share its cached blocks)."""
        self.check_alive()
        engine_index = self._ledger.least_loaded()
        self._links.send_requests(engine_index, requests)
        for request in requests:
            self._ledger.add(request.handle, engine_index)

    def abort_requests(
        self, handles: Sequence[int], reason: FinishReason = FinishReason.ABORT
    ) -> None:
        """End requests; handles that have finished already, or are unknown, are ignored."""
        self.check_alive()
        for engine_index, own in self._ledger.by_engine(handles).items():
            self._links.send_abort(engine_index, own, reason)

    async def get_outputs(self) -> list[EngineCoreOutputs]:
        """All bundles that have come, in order; at least one. Other tasks get their turn before.
        The caller has processed one list when it asks for the next. EngineDeadError once an engine
        core is gone."""
        self._processing = False
        self._give_answers()
        if self._outputs:
            await asyncio.sleep(0)
        while not self._outputs:
            self.check_alive()
            self._news.clear()
            await self._news.wait()
        outputs, self._outputs = self._outputs, []
        self._due, self._behind = self._behind, []
        self._processing = True
        return outputs

    async def command(self, arguments: CommandArguments) -> Any:
        """Run a registered command on all engine cores. Its errors, and EngineDeadError."""
        self.check_alive()
        arguments = check_arguments(arguments)
        loop = asyncio.get_running_loop()
        calls = {new_call_id(): loop.create_future() for _ in self._engines}
        self._calls.update(calls)
        try:
            for call_id, engine_index in zip(calls, self._engines, strict=True):
                name = command_of(arguments).name
                self._links.send_command(engine_index, call_id, name, arguments)
            answers = await asyncio.gather(*calls.values())
        finally:
            for call_id in calls:
                self._calls.pop(call_id, None)
        return merged([result_of(arguments, answer) for answer in answers])

    def health(self) -> EngineHealth:
        """Of the engine core that is worst off."""
        each = [signs.health() for signs in self._links.vital_signs]
        return min(each, key=lambda health: (health.live, health.ready))

    def plugin_calls(self) -> list[PluginCallStats]:
        """What the plugins in the engine cores did, as last told."""
        return self._links.plugin_calls()

    def check_alive(self) -> None:
        """EngineDeadError when an engine core is gone."""
        self._links.check_all_alive()

    def engine_died(self, engine_index: int, reason: str) -> None:
        """An engine core's process has ended. Any thread."""
        loop = self._loop
        if loop is None:
            self._links.mark_dead(engine_index, reason)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._on_death, engine_index, reason)

    def close(self) -> None:
        """Stop receiving; everything that waits gets EngineDeadError. Safe to call twice. The
        links stay open, for the last messages of the engine cores."""
        for engine_index in self._engines:
            self._links.mark_dead(engine_index, "the connection was closed")
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._descriptor)
        self._loop = None
        self._fail_calls()

    def _on_readable(self) -> None:
        if self._loop is None:
            return
        try:
            for _ in range(_MESSAGES_AT_ONCE):
                if not self._take():
                    break
            else:
                # The descriptor is edge-triggered: what is left would not be announced.
                self._loop.call_soon(self._on_readable)
        except Exception as error:
            # Nobody would hear of it in a callback, and callers would wait for what is lost.
            logger.exception("messages of engine cores can not be taken any more")
            self._links.lose_all(f"the front end failed: {describe(error)}")
        self._fail_calls()

    def _on_death(self, engine_index: int, reason: str) -> None:
        """What it has sent comes first: outputs, and maybe why it ends."""
        if self._loop is None:
            return
        try:
            while self._take():
                pass
        finally:
            self._links.mark_dead(engine_index, reason)
            self._fail_calls()

    def _take(self) -> bool:
        """Take the next message; False when there is none."""
        received = self._links.receive()
        if isinstance(received, list):
            for bundle in received:
                self._ledger.settle(bundle)
            self._outputs += received
            self._news.set()
        elif received is not None:
            # Who has the answer of a command sees what the outputs before it have changed.
            self._behind.append(received)
            if not self._processing:
                self._give_answers()
        return received is not None

    def _give_answers(self) -> None:
        """Those that no output before them keeps waiting."""
        answers, self._due = self._due, []
        if not self._outputs:
            answers += self._behind
            self._behind = []
        for answer in answers:
            self._answer(answer)

    def _answer(self, result: UtilityResult) -> None:
        call = self._calls.get(result.call_id)
        if call is not None and not call.done():
            call.set_result(result)

    def _fail_calls(self) -> None:
        try:
            self.check_alive()
        except EngineDeadError as error:
            self._news.set()
            for answer in (*self._due, *self._behind):
                self._answer(answer)
            self._due, self._behind = [], []
            for call in self._calls.values():
                if not call.done():
                    call.set_exception(error)
