"""The choices of a chat completion's chunks."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from builtin_plugins.openai_server.chat_types import ChatBody, ChunkChoice, Delta
from builtin_plugins.openai_server.generation import Job
from builtin_plugins.openai_server.logprobs import chat_logprobs, prompt_logprobs
from hookspecs.types.outputs import CompletionOutput, RequestOutput

__all__ = ["ChatChunks"]


class ChatChunks:
    """A ChunkForm."""

    def __init__(self, job: Job, body: ChatBody) -> None:
        self._job = job
        self._body = body

    def prepare(self, output: RequestOutput) -> None:
        """All is shown."""

    async def first(self, prompt_index: int, output: RequestOutput) -> Sequence[ChunkChoice]:
        """The role of each message, and once the logprobs of the prompt."""
        delta = Delta(role="assistant", content="")
        choices = [ChunkChoice(index=index, delta=delta) for index in range(self._job.params.n)]
        if self._body.prompt_logprobs is not None:
            choices[0].prompt_logprobs = prompt_logprobs(output, self._body.prompt_logprobs)
        return choices

    def news(self, index: int, completion: CompletionOutput) -> ChunkChoice | None:
        """With text, tokens or an end."""
        if not (completion.token_ids or completion.text or completion.finished):
            return None
        choice = ChunkChoice(
            index=index,
            delta=Delta(content=completion.text or UNSET),
            finish_reason=completion.finish_reason,
        )
        body = self._body
        if body.logprobs and completion.logprobs:
            engine = self._job.service.engine
            choice.logprobs = chat_logprobs(engine, completion.logprobs, body.top_logprobs or 0)
        if completion.stop_reason is not None:
            choice.stop_reason = completion.stop_reason
        if body.return_token_ids:
            choice.token_ids = completion.token_ids
        return choice

    def text(self, index: int, text: str) -> ChunkChoice:
        """Only that."""
        return ChunkChoice(index=index, delta=Delta(content=text))
