"""Counts of tokens in answers (objects `usage` of the OpenAI API)."""

from __future__ import annotations

import msgspec

from hookspecs.types.outputs import RequestOutput

__all__ = ["PromptTokensDetails", "Usage", "UsageCounter"]


class PromptTokensDetails(msgspec.Struct, kw_only=True):
    """What is known of the prompts' tokens."""

    cached_tokens: int
    """Tokens whose keys and values were in the cache."""


class Usage(msgspec.Struct, kw_only=True):
    """Tokens of all prompts and all outputs of a call, also of those that are not shown."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class UsageCounter:
    """Adds up outputs of a call that runs."""

    def __init__(self) -> None:
        self._prompts: dict[int, RequestOutput] = {}
        """The last output of each."""
        self.completion_tokens = 0

    def add(self, prompt_index: int, output: RequestOutput) -> None:
        """Count an output that holds what is new (OutputKind.DELTA), or all (FINAL_ONLY)."""
        self._prompts[prompt_index] = output
        for completion in output.outputs:
            self.completion_tokens += len(completion.token_ids)

    def usage(self) -> Usage:
        """The counts so far."""
        last = self._prompts.values()
        prompt_tokens = sum(len(output.prompt_token_ids) for output in last)
        return Usage(
            prompt_tokens=prompt_tokens,
            completion_tokens=self.completion_tokens,
            total_tokens=prompt_tokens + self.completion_tokens,
            prompt_tokens_details=PromptTokensDetails(
                cached_tokens=sum(output.num_cached_tokens for output in last)
            ),
        )
