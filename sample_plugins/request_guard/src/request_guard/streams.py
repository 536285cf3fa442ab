"""Redaction of the outputs of requests. Front-end process, one thread."""

from __future__ import annotations

import msgspec
from hookspecs import CompletionOutput, OutputKind, RequestOutput

from request_guard.redaction import Redaction

__all__ = ["Streams"]


class Streams:
    """Masks outputs; of streams it keeps what is withheld from one output to the next."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._withheld: dict[str, dict[int, str]] = {}
        """Request id to index of an output to the end of its text; only where there is one."""

    @property
    def num_open(self) -> int:
        """Requests of which text is withheld."""
        return len(self._withheld)

    def begin(self, request_id: str) -> None:
        """A request begins; an earlier one of its id is over, however it ended."""
        self._withheld.pop(request_id, None)

    def masked(self, output: RequestOutput, kind: OutputKind) -> RequestOutput:
        """A new output, whose texts are masked."""
        if kind is OutputKind.DELTA:
            completions = [self._piece(output.request_id, each) for each in output.outputs]
        else:
            # All text so far: what is withheld at its end comes again with the next output.
            completions = [self._whole(each) for each in output.outputs]
        if output.finished:
            self._withheld.pop(output.request_id, None)
        return msgspec.structs.replace(output, outputs=completions)

    def _whole(self, completion: CompletionOutput) -> CompletionOutput:
        text, _ = self._redaction.mask(completion.text, last=completion.finished)
        return msgspec.structs.replace(completion, text=text)

    def _piece(self, request_id: str, completion: CompletionOutput) -> CompletionOutput:
        withheld = self._withheld.pop(request_id, {})
        text = withheld.pop(completion.index, "") + completion.text
        text, rest = self._redaction.mask(text, last=completion.finished)
        if rest:
            withheld[completion.index] = rest
        if withheld:
            self._withheld[request_id] = withheld
        return msgspec.structs.replace(completion, text=text)
