"""The choices of a completion's chunks."""

from __future__ import annotations

from collections.abc import Sequence

from builtin_plugins.openai_server.completion_choices import ChoiceBuilder
from builtin_plugins.openai_server.completion_types import CompletionChoice
from hookspecs.types.outputs import CompletionOutput, RequestOutput

__all__ = ["CompletionChunks"]


class CompletionChunks:
    """A ChunkForm."""

    def __init__(self, builder: ChoiceBuilder) -> None:
        self._builder = builder

    def prepare(self, output: RequestOutput) -> None:
        """Without the output where only the prompt is wanted."""
        self._builder.prepare(output)

    async def first(self, prompt_index: int, output: RequestOutput) -> Sequence[CompletionChoice]:
        """The prompt, if asked for."""
        if not self._builder.has_openings:
            return ()
        return await self._builder.openings(prompt_index, output)

    def news(self, index: int, completion: CompletionOutput) -> CompletionChoice | None:
        """With text, tokens or an end."""
        choice = self._builder.choice(index, completion)
        return None if _is_empty(choice) else choice

    def text(self, index: int, text: str) -> CompletionChoice:
        """Only that."""
        return CompletionChoice(index=index, text=text)


def _is_empty(choice: CompletionChoice) -> bool:
    return not (
        choice.text
        or choice.finish_reason
        or choice.token_ids
        or (choice.logprobs and choice.logprobs.tokens)
    )
