"""Logits processors at work: what a worker does for the requests that ask for some."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from framework.sdk.raw_logprobs import RawRow, put_raw_logprobs
from hookspecs.contracts.logits import LogitsProcessor, SampledBatch, Sampler
from hookspecs.errors import RequestError, RequestFailedError
from hookspecs.types.columns import Int32Column
from hookspecs.types.step import NewRequest, RowFailure

if TYPE_CHECKING:
    import torch

__all__ = ["LogitsProcessors"]

HOOK: Final = "register_logits_processors"
"""The hook under which failures are counted."""

logger = logging.getLogger("framework.sdk")


@dataclass
class _Slot:
    """A request that has processors."""

    processors: tuple[LogitsProcessor, ...]
    num_logprobs: int | None
    failure: RowFailure | None = None
    """Once there is one the request gets no more tokens; its slot is still held."""


class LogitsProcessors:
    """The processors of the requests in a worker's slots. Worker process, one thread.

    A worker calls `add` for each request that starts or resumes and is to get tokens, before the
    sampler's; `remove` for each slot that becomes free; and `sample` where it would have called
    the sampler. One that does not sample by a `Sampler` calls `apply` and `accept` instead.

    Whatever a processor raises, or gives that is no logits, ends its request and no other. The
    failure is not poisoned: KV does not depend on processors. The traceback is logged once for
    each provider and method; the kernel counts every failure. As long as no request has a
    processor a step costs one truth test, and torch is not imported. Else `start`, `mask` and
    `accept` run in torch's inference mode.
    """

    def __init__(
        self, create: Callable[[NewRequest, int], Sequence[LogitsProcessor]], vocab_size: int
    ) -> None:
        """`create` is `WorkerContext.create_logits_processors`."""
        self._create = create
        self._vocab_size = vocab_size
        self._by_slot: dict[int, _Slot] = {}
        self._logged: set[tuple[str, str]] = set()
        """Provider and method: requests can repeat a failure at will."""

    def __contains__(self, slot: object) -> bool:
        """Whether the request in a slot has processors."""
        return slot in self._by_slot

    def add(self, request: NewRequest) -> RowFailure | None:
        """A request starts in its slot, or resumes. If it can not run: why, for the worker to
        report in this step; nothing is kept of it then.

        A prompt of embeddings has no tokens, so processors hear none.
        """
        try:
            processors = tuple(self._create(request, self._vocab_size))
        except RequestFailedError as error:
            return RowFailure(str(error), plugin=error.plugin, poisoned=False, hook=HOOK)
        except RequestError as error:  # it refuses the request
            return RowFailure(str(error), poisoned=False)
        if not processors:
            return None
        count, tokens = request.num_prompt_tokens, request.token_ids
        prompt = tuple(tokens[:count]) if request.prompt_embeds is None else ()
        generated = tuple(tokens[count:])
        with _inference_mode():
            for processor in processors:
                try:
                    processor.start(prompt, generated)
                except KeyboardInterrupt:
                    raise
                except BaseException as error:
                    return self._raised(processor, "start", error)
        self._by_slot[request.slot] = _Slot(processors, request.sampling_params.logprobs)
        return None

    def remove(self, slot: int) -> None:
        """A slot became free; it need not have processors."""
        self._by_slot.pop(slot, None)

    def sample(self, sampler: Sampler, logits: torch.Tensor, slots: Int32Column) -> SampledBatch:
        """`sampler.sample` with the processors before it: the same arguments and result.

        Rows that fail here do not reach the sampler. Logprobs are of the logits as given, before
        the processors.
        """
        if not self._by_slot:
            return sampler.sample(logits, slots)
        with _inference_mode():
            raw = self._raw_rows(logits, slots)
            failures = self.apply(logits, slots)
            sampled = _sample_others(sampler, logits, slots, failures)
            put_raw_logprobs(sampled, raw, sampler)
            good = ~np.isin(np.arange(len(slots)), list(sampled.failures))
            self.accept(slots[good], sampled.token_ids[good])
        return sampled

    def apply(self, logits: torch.Tensor, slots: Int32Column) -> dict[int, RowFailure]:
        """Put what the processors make of their rows into float32 logits [rows, vocab], in
        place; the failures by row (not slot). Logits of a failed row are undefined. A processor
        gets a copy of its row, so it reaches no other.

        A row that the model left without a finite largest logit is not touched: the sampler
        reports it.
        """
        failures: dict[int, RowFailure] = {}
        if not self._by_slot:
            return failures
        with _inference_mode():
            for row, slot in enumerate(slots.tolist()):
                state = self._by_slot.get(slot)
                if state is None:
                    continue
                if state.failure is None:
                    state.failure = self._mask(logits[row], state.processors)
                if state.failure is not None:
                    failures[row] = state.failure
        return failures

    def accept(self, slots: Int32Column, token_ids: Int32Column) -> None:
        """The next token of each of `slots` was chosen: int32[rows] each. A failure here is one
        of the next token, which `apply` reports: this token is right, and may be the last."""
        if not self._by_slot:
            return
        with _inference_mode():
            for slot, token in zip(slots.tolist(), token_ids.tolist(), strict=True):
                state = self._by_slot.get(slot)
                if state is not None and state.failure is None:
                    state.failure = self._accept(token, state.processors)

    def _raw_rows(self, logits: torch.Tensor, slots: Int32Column) -> dict[int, RawRow]:
        """Copies of the rows that processors may change and whose logprobs are wanted."""
        raw = {}
        for row, slot in enumerate(slots.tolist()):
            state = self._by_slot.get(slot)
            if state is not None and state.num_logprobs is not None:
                raw[row] = RawRow(logits[row].clone(), state.num_logprobs)
        return raw

    def _mask(self, row: torch.Tensor, processors: Sequence[LogitsProcessor]) -> RowFailure | None:
        if not _is_finite(float(row.max())):
            return None
        # A copy: a view would lend all rows, by its base or its storage.
        own = row.clone()
        for processor in processors:
            try:
                masked = processor.mask(own)
                wrong = _wrong_form(masked, row)
                if wrong is None and masked is not own:
                    own.copy_(masked)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                return self._raised(processor, "mask", error)
            wrong = wrong or _wrong_values(float(own.max()))
            if wrong is not None:
                return _failure(processor, wrong)
        row.copy_(own)
        return None

    def _accept(self, token: int, processors: Sequence[LogitsProcessor]) -> RowFailure | None:
        for processor in processors:
            try:
                processor.accept(token)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                return self._raised(processor, "accept", error)
        return None

    def _raised(self, processor: LogitsProcessor, method: str, error: BaseException) -> RowFailure:
        if isinstance(error, RequestError):  # on purpose, so neither logged nor counted
            return _failure(processor, f"refuses the request in {method}: {error}", hook=None)
        said = "".join(traceback.format_exception_only(error)).strip()
        failure = _failure(processor, f"raised in {method}: {said}")
        if (processor.context.name, method) not in self._logged:
            self._logged.add((processor.context.name, method))
            logger.warning("%s (said once; more are counted)", failure.message, exc_info=error)
        return failure


def _wrong_form(masked: object, row: torch.Tensor) -> str | None:
    import torch

    if not isinstance(masked, torch.Tensor):
        given = type(masked).__name__
    elif masked.dtype != row.dtype or masked.shape != row.shape:
        given = f"{masked.dtype} of shape {list(masked.shape)}"
    else:
        return None
    return f"returned {given} from mask; it must return {row.dtype} of shape {list(row.shape)}"


def _wrong_values(largest: float) -> str | None:
    """A row's largest value is NaN if any is."""
    if largest == -np.inf:
        return "leaves no token to choose: mask returned nothing but -inf"
    if not _is_finite(largest):
        return f"returned {largest} from mask; forbid a token with -inf, and force one so too"
    return None


def _is_finite(value: float) -> bool:
    return bool(np.isfinite(value))


def _failure(processor: LogitsProcessor, what: str, *, hook: str | None = HOOK) -> RowFailure:
    name, plugin = processor.context.name, processor.context.plugin
    return RowFailure(
        f"logits processor {name!r} of plugin {plugin!r} {what}",
        plugin=plugin,
        poisoned=False,
        hook=hook,
    )


def _sample_others(
    sampler: Sampler, logits: torch.Tensor, slots: Int32Column, failures: dict[int, RowFailure]
) -> SampledBatch:
    """Sample for the rows that did not fail; rows of the result are those of `logits`."""
    if not failures:
        return sampler.sample(logits, slots)
    token_ids = np.zeros(len(slots), dtype=np.int32)
    result = SampledBatch(token_ids=token_ids, failures=dict(failures))
    kept = np.flatnonzero(~np.isin(np.arange(len(slots)), list(failures)))
    if not len(kept):
        return result
    sampled = sampler.sample(logits[kept], slots[kept])
    token_ids[kept] = sampled.token_ids
    result.failures |= {int(kept[row]): failure for row, failure in sampled.failures.items()}
    if sampled.logprobs is not None and sampled.logprob_rows is not None:
        result.logprobs = sampled.logprobs
        result.logprob_rows = kept[sampled.logprob_rows].astype(np.int32)
    return result


def _inference_mode() -> AbstractContextManager[object]:
    import torch

    return torch.inference_mode()
