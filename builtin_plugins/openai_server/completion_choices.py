"""Outputs of the engine as choices of a completion, whole or piece by piece."""

from __future__ import annotations

from builtin_plugins.openai_server.completion_types import CompletionBody, CompletionChoice
from builtin_plugins.openai_server.logprobs import (
    CompletionLogprobs,
    TextAligner,
    echo_entries,
    prompt_logprobs,
)
from hookspecs.contracts.frontend import EngineClient
from hookspecs.types.outputs import CompletionOutput, RequestOutput

__all__ = ["ChoiceBuilder", "join_choices", "only_scores"]


def only_scores(body: CompletionBody) -> bool:
    """Whether the prompt is all that is wanted (`echo` with `max_tokens` 0), as evaluations do.
    One token is made, because the engine makes at least one, and dropped."""
    return body.max_tokens == 0 and bool(body.echo)


class ChoiceBuilder:
    """Of one call. Choices have the indices 0 to prompts * n - 1."""

    def __init__(self, engine: EngineClient, body: CompletionBody, *, n: int) -> None:
        self._engine = engine
        self._n = n
        self._only_scores = only_scores(body)
        self._echo = bool(body.echo)
        self._logprobs = body.logprobs
        self._prompt_logprobs = body.prompt_logprobs
        self._token_ids = bool(body.return_token_ids)
        self._aligners: dict[int, TextAligner] = {}

    def prepare(self, output: RequestOutput) -> None:
        """Where only the prompt is wanted, leave nothing else, as if no token had been made. To be
        called for each output, before the others."""
        for completion in output.outputs if self._only_scores else ():
            completion.text, completion.token_ids, completion.logprobs = "", [], None
            completion.stop_reason = None
            if completion.finish_reason == "stop":
                completion.finish_reason = "length"

    @property
    def has_openings(self) -> bool:
        """Whether choices begin with anything but their output."""
        return self._echo or self._prompt_logprobs is not None

    async def openings(self, prompt_index: int, output: RequestOutput) -> list[CompletionChoice]:
        """What the choices of a prompt begin with, given its first output: with `echo` the
        prompt, and on the first of them the prompt's logprobs."""
        text = await self._prompt_text(output) if self._echo else ""
        entries = []
        if self._echo and self._logprobs is not None:
            entries = echo_entries(self._engine, output, self._logprobs)
        choices = []
        for number in range(self._n):
            choice = CompletionChoice(index=prompt_index * self._n + number, text=text)
            if self._logprobs is not None:
                choice.logprobs = self._aligner(choice.index).echo(text, entries)
            choices.append(choice)
        if self._prompt_logprobs is not None:
            choices[0].prompt_logprobs = prompt_logprobs(output, self._prompt_logprobs)
        return choices

    def choice(self, index: int, output: CompletionOutput) -> CompletionChoice:
        """What is new of a choice, after its opening."""
        choice = CompletionChoice(index=index, text=output.text, finish_reason=output.finish_reason)
        if self._logprobs is not None:
            choice.logprobs = self._aligner(index).push(
                output.text, output.logprobs or (), finished=output.finished
            )
        if self._token_ids:
            choice.token_ids = output.token_ids
        if output.stop_reason is not None:
            choice.stop_reason = output.stop_reason
        return choice

    def _aligner(self, index: int) -> TextAligner:
        return self._aligners.setdefault(index, TextAligner(self._engine))

    async def _prompt_text(self, output: RequestOutput) -> str:
        if output.prompt is not None:
            return output.prompt
        if not self._engine.info.has_tokenizer:
            return ""
        return await self._engine.detokenize(output.prompt_token_ids)


def join_choices(opening: CompletionChoice, rest: CompletionChoice) -> CompletionChoice:
    """Both in one."""
    rest.text = opening.text + rest.text
    if opening.logprobs is not None and rest.logprobs is not None:
        rest.logprobs = _join(opening.logprobs, rest.logprobs)
    rest.prompt_logprobs = opening.prompt_logprobs
    return rest


def _join(first: CompletionLogprobs, second: CompletionLogprobs) -> CompletionLogprobs:
    return CompletionLogprobs(
        tokens=first.tokens + second.tokens,
        token_logprobs=first.token_logprobs + second.token_logprobs,
        top_logprobs=first.top_logprobs + second.top_logprobs,
        text_offset=first.text_offset + second.text_offset,
    )
