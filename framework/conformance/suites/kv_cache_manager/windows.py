"""Layers with a sliding window."""

from __future__ import annotations

from framework.conformance.base import lacking, requires
from framework.conformance.subject import Subject, merged
from framework.conformance.suites.kv_cache_manager.base import (
    PROMPT,
    KvCacheManagerPart,
    default_manager,
    run_to_end,
)
from framework.conformance.worlds.engines import run_prompts
from framework.conformance.worlds.hand_kernel import HandKernel
from framework.conformance.worlds.makers import PartMaker
from framework.conformance.worlds.mini_kernel import FULL, sliding
from hookspecs.contracts.kv_cache import KVCacheCapability

__all__ = ["Windows"]


class Windows(KvCacheManagerPart):
    """Windows need no more blocks than they see."""

    @requires(KVCacheCapability.SLIDING_WINDOW)
    def test_blocks_that_left_a_window_are_freed(self, make: PartMaker) -> None:
        """Requires the capability sliding_window.
        Does: runs a request of 60 tokens with a window of 4, in a cache of 16 tokens.
        Must: hold only what the window reaches, so that it fits.
        """
        kernel = HandKernel(
            make, num_blocks=8, block_size=2, groups=(sliding(4),), max_num_batched_tokens=4
        )
        assert kernel.kv.can_ever_fit(60), (
            "60 tokens with a window of 4 do not fit into 16, it says"
        )
        request = kernel.add(30, 30)
        most = run_to_end(kernel, request)
        needed = kernel.kv.blocks_for(60)
        assert most <= needed <= 8, f"it held {most} blocks; blocks_for(60) is {needed}, of 8"

    @requires(KVCacheCapability.SLIDING_WINDOW, KVCacheCapability.PREFIX_CACHING)
    def test_prefixes_are_found_through_windows(self, make: PartMaker) -> None:
        """Requires the capabilities sliding_window and prefix_caching.
        Does: looks up a cached prompt where layers have a window, alone and beside full attention.
        Must: find all of it, with the null block where the window does not reach, and no block of
        which another group's is needed.
        """
        for groups in ((sliding(5),), (FULL, sliding(5)), (sliding(3), FULL)):
            kernel = HandKernel(make, num_blocks=64, groups=groups)
            kernel.compute(kernel.add(PROMPT, 1))
            request = kernel.add([*PROMPT, 1], 1)
            found = kernel.kv.lookup(request)
            assert found.num_tokens == 12, f"{found.num_tokens} of 12 cached tokens were found"
            lengths = [len(blocks) for blocks in found.blocks]
            assert lengths == [3] * len(groups), f"blocks of each group: {lengths}, 3 are wanted"
            kernel.compute(request)

    @lacking(KVCacheCapability.SLIDING_WINDOW)
    def test_without_windows_all_tokens_are_kept(self, subject: Subject, seed: int) -> None:
        """Requires a manager that does not declare sliding_window.
        Does: runs a model with windows in a real engine, with it and with the default manager.
        Must: work, with the same tokens: the kernel gives it one group that keeps everything.
        """
        with_windows = _with_windows(subject)
        with with_windows.launch() as engine:
            own = run_prompts(engine, seed)
        with with_windows.launch(cache=default_manager()) as engine:
            default = run_prompts(engine, seed)
        assert own == default, "other tokens than with the default manager"


def _with_windows(subject: Subject) -> Subject:
    """The same one, with a model of which every other layer has a window."""
    options = {"scripted": {"sliding_window": 4, "num_groups": 2}}
    return Subject(
        subject.plugin,
        subject.kind.name,
        subject.provider,
        merged(subject.given, {"plugins": {"options": options}}),
    )
