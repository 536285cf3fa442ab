"""Broken eviction policies."""

from __future__ import annotations

from builtin_plugins.kv_cache_paged.eviction import LruEviction
from hookspecs.contracts.kv_cache import EvictionContext, EvictionPolicy
from tests.conformance.mutants.mutant import Mutant, providing

__all__ = ["MUTANTS"]


class GivesUpTwice(LruEviction):
    """Keeps what it has given up: a block has two users."""

    def pop(self) -> int:
        if not self._unused:
            raise IndexError
        return next(iter(self._unused))


class LosesBlocks(LruEviction):
    """Has room for ten."""

    def add(self, block: int) -> None:
        super().add(block)
        if len(self._unused) > 10:
            self._unused.popitem(last=False)


class CountsUses(LruEviction):
    """Its length is that of its history."""

    def __init__(self, context: EvictionContext) -> None:
        super().__init__(context)
        self._count = 0

    def add(self, block: int) -> None:
        self._count += 1
        super().add(block)

    def __len__(self) -> int:
        return self._count


class KeepsWhatIsUsed(LruEviction):
    """Knows only one way out."""

    def remove(self, block: int) -> None:
        if block not in self._unused:
            raise KeyError(block)


class RemovesInSilence(LruEviction):
    def remove(self, block: int) -> None:
        self._unused.pop(block, None)


class GivesUpTheNullBlock(LruEviction):
    def pop(self) -> int:
        return super().pop() if self._unused else 0


class SharesState(EvictionPolicy):
    """All objects of it are one."""

    _unused: dict[int, None] = {}  # noqa: RUF012 that is its fault

    def add(self, block: int) -> None:
        self._unused[block] = None

    def remove(self, block: int) -> None:
        del self._unused[block]

    def pop(self) -> int:
        for block in self._unused:
            del self._unused[block]
            return block
        raise IndexError

    def __len__(self) -> int:
        return len(self._unused)


class WalksAList(EvictionPolicy):
    """Finds blocks by comparing with all, in compiled code."""

    def __init__(self, context: EvictionContext) -> None:
        super().__init__(context)
        self._unused: list[int] = []

    def add(self, block: int) -> None:
        self._unused.append(block)

    def remove(self, block: int) -> None:
        try:
            self._unused.remove(block)
        except ValueError as error:
            raise KeyError(block) from error

    def pop(self) -> int:
        return self._unused.pop(0)

    def __len__(self) -> int:
        return len(self._unused)


class CountsInALoop(LruEviction):
    def __len__(self) -> int:
        count = 0
        for _ in self._unused:
            count += 1
        return count


class ForgetsTheFirst(LruEviction):
    """Wrong only in the long run: every fifth use is lost."""

    adds = 0

    def add(self, block: int) -> None:
        self.adds += 1
        if self.adds % 5:
            super().add(block)


class RefusesToBeEmptied(LruEviction):
    """Holds back one block, for bad times."""

    def pop(self) -> int:
        if len(self._unused) < 2:
            raise IndexError
        return super().pop()

    def __len__(self) -> int:
        return max(0, len(self._unused) - 1)


class GivesUpWhatIsUsed(LruEviction):
    """Forgets what was used again once there are many: a reader's blocks are overwritten."""

    def remove(self, block: int) -> None:
        super().remove(block)
        if len(self._unused) > 4:
            self._unused[block] = None
            self._unused.popitem(last=False)


def _mutant(fault: str, part: type[EvictionPolicy], *caught_by: str) -> Mutant:
    return Mutant("eviction_policy", fault, providing("eviction_policy", part), caught_by)


MUTANTS = [
    _mutant(
        "gives up a block twice",
        GivesUpTwice,
        "test_it_gives_up_what_it_was_given",
        "test_random_use",
        "test_tokens_do_not_depend_on_it",
    ),
    _mutant("loses blocks", LosesBlocks, "test_it_gives_up_what_it_was_given"),
    _mutant("counts what was", CountsUses, "test_len_counts_what_could_be_given_up"),
    _mutant(
        "keeps what is used again",
        KeepsWhatIsUsed,
        "test_removed_blocks_are_not_given_up",
        "test_everything_ends",
    ),
    _mutant(
        "removes in silence",
        RemovesInSilence,
        "test_removing_what_is_not_there_is_a_key_error",
    ),
    _mutant(
        "gives up the null block",
        GivesUpTheNullBlock,
        "test_popping_nothing_is_an_index_error",
    ),
    _mutant("loses every fifth block", ForgetsTheFirst, "test_random_use", "test_everything_ends"),
    _mutant("shares its state", SharesState, "test_two_share_nothing"),
    _mutant("compares with all blocks", WalksAList, "test_calls_cost_the_same_in_any_crowd"),
    _mutant("counts in a loop", CountsInALoop, "test_calls_cost_the_same_in_any_crowd"),
    _mutant("holds one back", RefusesToBeEmptied, "test_a_reset_empties_it"),
    _mutant("gives up what is used", GivesUpWhatIsUsed, "test_everything_ends"),
]
