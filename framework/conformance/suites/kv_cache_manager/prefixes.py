"""What prefix caching finds."""

from __future__ import annotations

from typing import Any

from framework.conformance.base import requires
from framework.conformance.suites.kv_cache_manager.base import (
    PROMPT,
    KvCacheManagerPart,
    facts,
    is_empty,
    run_to_end,
)
from framework.conformance.worlds.hand_kernel import HandKernel
from framework.conformance.worlds.makers import PartMaker
from hookspecs.contracts.kv_cache import KVCacheCapability
from hookspecs.types.request import AdapterRef
from hookspecs.types.stats import PrefixCacheStats

__all__ = ["Prefixes"]


class Prefixes(KvCacheManagerPart):
    """What was committed is found, by those who may share it, and nothing else."""

    @requires(KVCacheCapability.PREFIX_CACHING)
    def test_committed_prefixes_are_found(self, make: PartMaker) -> None:
        """Requires the capability prefix_caching.
        Does: computes prompts and outputs, then looks up requests that begin like them.
        Must: find all complete blocks, but never all tokens of a request, with blocks for each.
        """
        kernel = HandKernel(make, num_blocks=64)
        first = kernel.add(PROMPT[:6], 7)
        run_to_end(kernel, first)
        written = first.token_ids[:-1]
        for length in range(1, len(written) + 1):
            found = kernel.kv.lookup(kernel.add(written[:length]))
            expected = (length - 1) // 4 * 4
            assert found.num_tokens == expected, (
                f"of {length} tokens, all of them cached, {found.num_tokens} were found and not "
                f"{expected}"
            )
            blocks = sum(map(len, found.blocks))
            assert blocks == expected // 4, f"{blocks} blocks for {expected} tokens: {found}"
        other = kernel.kv.lookup(kernel.add([*written[:6], 1, 2, 3, 4])).num_tokens
        assert other == 4, f"of a prompt that differs after 6 tokens {other} were found, not 4"
        middle = kernel.kv.lookup(kernel.add([1, *written[1:]]))
        assert middle.num_tokens == 0, "a prompt with another first token was found"

    @requires(KVCacheCapability.PREFIX_CACHING)
    def test_only_what_was_committed_is_found(self, make: PartMaker) -> None:
        """Requires the capability prefix_caching.
        Does: looks prompts up while the step that computes them has not come back, and after only
        a part of them was computed.
        Must: find nothing that is not written yet.
        """
        kernel = HandKernel(make, num_blocks=64)
        writer, reader = kernel.add(PROMPT, 4), kernel.add([*PROMPT, 1])
        found: list[int] = []
        kernel.on_scheduled = lambda _: found.append(kernel.kv.lookup(reader).num_tokens)
        for tokens in (6, 5, 1):
            kernel.compute((writer, tokens))
        kernel.on_scheduled = None
        assert found == [0, 4, 8], f"before steps of 6, 5 and 1 tokens were found {found}"
        last = kernel.kv.lookup(reader).num_tokens
        assert last == 12, f"{last} tokens were found after all 12 were computed"

    @requires(KVCacheCapability.PREFIX_CACHING)
    def test_lookup_has_no_side_effects(self, make: PartMaker) -> None:
        """Requires the capability prefix_caching.
        Does: looks the same request up many times, and fills the cache with others afterwards.
        Must: find the same each time, change no account and no statistics.
        """
        kernel = HandKernel(make, num_blocks=12)
        kernel.compute(kernel.add(PROMPT, 1))
        kernel.kv.take_stats()
        probe = kernel.add([*PROMPT, 1])
        before = (kernel.kv.num_free_blocks, kernel.kv.blocks_in_use())
        found = [kernel.kv.lookup(probe).num_tokens for _ in range(5)]
        assert found == [12] * 5, f"the same lookup found {found} of 12 tokens"
        after = (kernel.kv.num_free_blocks, kernel.kv.blocks_in_use())
        assert before == after, f"lookups changed free and used blocks from {before} to {after}"
        stats = kernel.kv.take_stats()
        assert stats == PrefixCacheStats(), f"lookups were counted, which may not be used: {stats}"
        kernel.kv.check()

    @requires(KVCacheCapability.PREFIX_CACHING)
    def test_failed_requests_leave_nothing(self, make: PartMaker) -> None:
        """Requires the capability prefix_caching.
        Does: lets requests fail whose blocks may be wrong: alone, while another uses their blocks,
        and after they took over a beginning that another wrote.
        Must: let nobody find what they wrote, and keep what they only read.
        """
        kernel = HandKernel(make, num_blocks=64)
        kernel.compute(kernel.add(PROMPT, 1))
        bad = kernel.add([*PROMPT, *range(8)], 9)
        kernel.compute(bad)
        user = kernel.add([*bad.prompt_token_ids, 3], 9)
        kernel.compute(user)
        probe = kernel.add([*bad.prompt_token_ids, 4])
        assert kernel.kv.lookup(probe).num_tokens == 20, "20 tokens were committed"
        kernel.compute(bad, fail=[bad])
        for when in ("while another still uses it", "after the last user has ended"):
            found = kernel.kv.lookup(probe).num_tokens
            assert found == 12, (
                f"{found} tokens were found {when}; 12 were written by another, 8 by the one that "
                "failed"
            )
            if user.request_id in kernel.requests:
                kernel.abort(user)
        kernel.compute(again := kernel.add([*bad.prompt_token_ids, 5], 9))
        found = kernel.kv.lookup(probe).num_tokens
        assert found == 20, f"{found} tokens were found after {again.request_id} wrote 20 anew"

    @requires(KVCacheCapability.PREFIX_CACHING)
    def test_tenants_do_not_share(self, make: PartMaker) -> None:
        """Requires the capability prefix_caching.
        Does: runs one prompt with different cache salts and adapters.
        Must: find it for the same salt and adapter only: the keys are block_hashes, whole.
        """
        isolated: list[dict[str, Any]] = [
            {},
            {"cache_salt": "red"},
            {"cache_salt": "green"},
            {"adapter": AdapterRef(name="red", version="1")},
        ]
        kernel = HandKernel(make, num_blocks=64)
        for number, fields in enumerate(isolated):
            for other, asked in enumerate(isolated):
                found = kernel.kv.lookup(kernel.add([*PROMPT, 1], **asked)).num_tokens
                expected = 12 if other < number else 0
                assert found == expected, (
                    f"{found} tokens of a prompt were found with {asked}, not {expected}; it was "
                    f"computed with {isolated[:number]}"
                )
            kernel.compute(kernel.add(PROMPT, 1, **fields))

    @requires(KVCacheCapability.PREFIX_CACHING)
    def test_what_is_computed_whole_finds_nothing(self, make: PartMaker) -> None:
        """Requires the capability prefix_caching.
        Does: looks up a request that wants something of each prompt token, of a cached prompt.
        Must: find nothing for it.
        """
        kernel = HandKernel(make, num_blocks=64)
        kernel.compute(kernel.add(PROMPT, 1))
        request = kernel.add(PROMPT, 1, prompt_logprobs=1)
        found = kernel.kv.lookup(request)
        assert is_empty(found), f"{found} was found, but computes_whole_prompt is true"
        kernel.compute(request)

    @requires(KVCacheCapability.PREFIX_CACHING)
    def test_a_reset_forgets_all_or_nothing(self, make: PartMaker) -> None:
        """Requires the capability prefix_caching.
        Does: resets the cache while a request uses blocks, and afterwards.
        Must: return False and change nothing first, then return True and find nothing any more.
        """
        kernel = HandKernel(make, num_blocks=16)
        kernel.compute(kernel.add(PROMPT, 1))
        request, probe = kernel.add(6, 4), kernel.add([*PROMPT, 1])
        kernel.compute(request)
        before = facts(kernel, probe)
        refused = kernel.kv.reset_prefix_cache()
        assert refused is False, f"a reset while a request uses blocks gave {refused!r}"
        assert facts(kernel, probe) == before, "a refused reset changed the cache"
        kernel.abort(request)
        done = kernel.kv.reset_prefix_cache()
        assert done is True, f"a reset while nothing runs gave {done!r}"
        found = kernel.kv.lookup(probe)
        assert is_empty(found), f"{found} was found after a reset"
        kernel.kv.check()
        kernel.check_accounts()
