"""Prefixes that a step computes, which others had better wait for than compute as well."""

from __future__ import annotations

from builtin_plugins.scheduler_continuous.plan import StepPlan
from hookspecs.contracts.request_view import RequestView

__all__ = ["PrefixesInFlight"]


class PrefixesInFlight:
    """The next block of each prompt that this step computes. A request that has the same one, and
    so all before it, finds these blocks in the cache one step later."""

    def __init__(self, plan: StepPlan, block_size: int) -> None:
        self._block_size = block_size
        self._next: dict[int, set[bytes]] = {}
        """Index of a block to hashes."""
        for request, num_computed in plan.prompts():
            self.add(request, num_computed)

    def add(self, request: RequestView, num_computed: int) -> None:
        """A prompt goes on, or starts, behind its first `num_computed` tokens."""
        index = num_computed // self._block_size
        # One that does not look into the cache fills it all the same.
        if index < len(request.block_hashes):
            self._next.setdefault(index, set()).add(request.block_hashes[index])

    def may_serve(self, request: RequestView) -> bool:
        """Whether the request could use one of them, whatever the cache has of it already."""
        if not self._next or request.computes_whole_prompt:
            return False
        usable = self._usable(request)
        return any(
            index < usable and request.block_hashes[index] in blocks
            for index, blocks in self._next.items()
        )

    def continue_prefix(self, request: RequestView, num_cached: int) -> bool:
        """Whether one of them comes next after the `num_cached` tokens that the cache has."""
        index = num_cached // self._block_size
        return index < self._usable(request) and request.block_hashes[index] in self._next.get(
            index, ()
        )

    def _usable(self, request: RequestView) -> int:
        """Full blocks before the last token, which is always computed."""
        return min(len(request.block_hashes), (request.num_tokens - 1) // self._block_size)
