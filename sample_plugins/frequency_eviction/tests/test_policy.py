"""The policy alone: against a slow model that states the rule, and what follows from the rule."""

from __future__ import annotations

import pytest
from hookspecs import EngineConfig
from hookspecs.contracts.kv_cache import EvictionContext
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from frequency_eviction.plugin import plugin
from frequency_eviction.policy import MOST_USES, FrequencyEviction


def policy(num_blocks: int = 64) -> FrequencyEviction:
    return FrequencyEviction(EvictionContext(config=EngineConfig(), num_blocks=num_blocks))


def use(subject: FrequencyEviction, block: int, times: int) -> None:
    """Content is computed, and found again until it was used so many times."""
    subject.add(block)
    for _ in range(times - 1):
        subject.remove(block)
        subject.add(block)


def test_the_block_used_least_often_goes_first() -> None:
    subject = policy()
    for block, times in ((1, 3), (2, 1), (3, 2)):
        use(subject, block, times)
    assert [subject.pop() for _ in range(3)] == [2, 3, 1]


def test_of_equal_ones_the_least_recently_used_goes_first() -> None:
    subject = policy()
    for block in (1, 2, 3):
        use(subject, block, 2)
    subject.remove(1)
    subject.remove(2)
    subject.add(2)
    subject.add(1)
    assert [subject.pop() for _ in range(3)] == [3, 2, 1]


def test_new_content_of_a_block_is_counted_from_the_beginning() -> None:
    subject = policy()
    use(subject, 1, 5)
    assert subject.pop() == 1
    use(subject, 2, 2)
    use(subject, 1, 1)
    assert subject.pop() == 1


def test_a_popular_block_outlasts_newcomers_but_not_for_ever() -> None:
    subject = policy()
    use(subject, 1, 5)
    survived = 0
    subject.add(2)
    while (given_up := subject.pop()) != 1:
        subject.add(given_up)
        survived += 1
    assert survived == 4  # as many as it was used more often


def test_uses_beyond_the_most_do_not_count() -> None:
    subject = policy()
    use(subject, 1, MOST_USES)
    use(subject, 2, 1000)
    assert [subject.pop(), subject.pop()] == [1, 2]


def test_what_is_not_there_can_not_be_taken() -> None:
    subject = policy()
    with pytest.raises(IndexError, match="no unused cached block"):
        subject.pop()
    with pytest.raises(KeyError):
        subject.remove(1)
    subject.add(1)
    subject.remove(1)
    with pytest.raises(KeyError):
        subject.remove(1)


def test_the_plugin_offers_the_policy() -> None:
    (provider,) = plugin.register_eviction_policies()
    assert provider.name == plugin.PLUGIN.name == "frequency"


class AgainstTheRule(RuleBasedStateMachine):
    """The rule, in a dict of every block's uses and one of the ranks of unused blocks."""

    @initialize(num_blocks=st.integers(2, 12))
    def start(self, num_blocks: int) -> None:
        self.subject = policy(num_blocks)
        self.uses = dict.fromkeys(range(1, num_blocks), 0)
        self.ranks: dict[int, int] = {}  # in the order in which they were added
        self.age = 0

    @precondition(lambda self: len(self.ranks) < len(self.uses))
    @rule(data=st.data())
    def add(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from([b for b in self.uses if b not in self.ranks]))
        self.subject.add(block)
        self.uses[block] += 1
        self.ranks[block] = self.age + min(self.uses[block], MOST_USES)

    @precondition(lambda self: self.ranks)
    @rule(data=st.data(), times=st.integers(1, 20))
    def use_again(self, data: st.DataObject, times: int) -> None:
        block = data.draw(st.sampled_from(list(self.ranks)))
        for _ in range(times):
            self.subject.remove(block)
            self.subject.add(block)
        self.uses[block] += times
        del self.ranks[block]
        self.ranks[block] = self.age + min(self.uses[block], MOST_USES)

    @precondition(lambda self: self.ranks)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(list(self.ranks)))
        self.subject.remove(block)
        del self.ranks[block]

    @precondition(lambda self: self.ranks)
    @rule()
    def pop(self) -> None:
        lowest = min(self.ranks, key=self.ranks.__getitem__)  # the first of equal ones
        assert self.subject.pop() == lowest
        self.age = self.ranks.pop(lowest)
        self.uses[lowest] = 0

    @invariant()
    def holds_as_many(self) -> None:
        if hasattr(self, "subject"):
            assert len(self.subject) == len(self.ranks)

    def teardown(self) -> None:
        if hasattr(self, "subject"):
            while self.ranks:
                self.pop()
            assert len(self.subject) == 0


TestAgainstTheRule = AgainstTheRule.TestCase
