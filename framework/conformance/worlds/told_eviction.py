"""`ToldEviction`: an eviction policy that gives up what a test prefers, and checks its caller."""

from __future__ import annotations

from collections.abc import Callable

from hookspecs.config import EngineConfig
from hookspecs.contracts.kv_cache import EvictionContext, EvictionPolicy

__all__ = ["EvictionFault", "ToldEviction"]


class EvictionFault(Exception):
    """Raised by an eviction policy that was told to."""


class ToldEviction(EvictionPolicy):
    """First in, first out, but preferred blocks before others. AssertionError where it is called
    in another way than its contract says."""

    def __init__(self, num_blocks: int) -> None:
        super().__init__(
            EvictionContext(
                config=EngineConfig(), num_blocks=num_blocks, name="told", plugin="told-eviction"
            )
        )
        self.held: dict[int, None] = {}
        self.preferred: set[int] = set()
        self.added: list[int] = []
        """Blocks in the order of `add`."""
        self.num_popped = 0
        self.fault = ""
        """The method that raises."""
        self.instead: Callable[[], int] | None = None
        """What `pop` gives in place of a block that it holds."""

    def add(self, block: int) -> None:
        self._maybe_raise("add")
        last = self.context.num_blocks - 1
        assert 0 < block <= last, f"add({block}): blocks are 1 to {last}, 0 is the null block"
        assert block not in self.held, f"add({block}): it was added, and not removed since"
        self.held[block] = None
        self.added.append(block)

    def remove(self, block: int) -> None:
        self._maybe_raise("remove")
        assert block in self.held, f"remove({block}): it was not added, or is in use already"
        del self.held[block]

    def pop(self) -> int:
        self._maybe_raise("pop")
        assert self.held, "pop: nothing is held; len says so"
        self.num_popped += 1
        if self.instead is not None:
            return self.instead()
        block = next((b for b in self.held if b in self.preferred), next(iter(self.held)))
        del self.held[block]
        return block

    def __len__(self) -> int:
        return len(self.held)

    def _maybe_raise(self, method: str) -> None:
        if self.fault == method:
            raise EvictionFault(method)
