"""Which engine core has which request: the bookkeeping of one front end over several engines."""

from __future__ import annotations

from collections.abc import Iterable

from hookspecs.types.outputs import NOT_FINISHED, EngineCoreOutputs

__all__ = ["RequestLedger"]


class RequestLedger:
    """From a request's hand-over to the output that ends it. One thread."""

    def __init__(self, num_engines: int) -> None:
        self._engine_of: dict[int, int] = {}
        """By handle."""
        self._counts = [0] * num_engines

    def __len__(self) -> int:
        return len(self._engine_of)

    def least_loaded(self) -> int:
        """The engine with the fewest of this front end's requests; of several the first."""
        return self._counts.index(min(self._counts))

    def add(self, handle: int, engine_index: int) -> None:
        """A request was handed to an engine."""
        self._engine_of[handle] = engine_index
        self._counts[engine_index] += 1

    def by_engine(self, handles: Iterable[int]) -> dict[int, list[int]]:
        """Engine index to those of `handles` that it has; others are left out."""
        found: dict[int, list[int]] = {}
        for handle in handles:
            engine_index = self._engine_of.get(handle)
            if engine_index is not None:
                found.setdefault(engine_index, []).append(handle)
        return found

    def settle(self, outputs: EngineCoreOutputs) -> None:
        """Forget the requests that an engine says have ended."""
        ended: list[int] = []
        codes = outputs.finish_codes.tolist()
        if codes.count(NOT_FINISHED) < len(codes):
            ended += outputs.handles[outputs.finish_codes != NOT_FINISHED].tolist()
        if outputs.finished_handles is not None:
            ended += outputs.finished_handles.tolist()
        for handle in ended:
            engine_index = self._engine_of.pop(handle, None)
            if engine_index is not None:
                self._counts[engine_index] -= 1
