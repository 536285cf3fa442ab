"""Suite of logits processors, alone and in a real engine."""

from __future__ import annotations

import gc
import itertools
import random
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import msgspec
import pytest
import torch

from framework.conformance.subject import Subject
from framework.conformance.worlds.cost import lines_of
from framework.conformance.worlds.engines import greedy, prompts_of
from framework.conformance.worlds.tensors import TensorConformance
from framework.frontend.extensions import convert_extensions
from framework.launcher import Engine
from hookspecs.contracts.logits import LogitsProcessor
from hookspecs.errors import InvalidRequestError, RequestError
from hookspecs.types.sampling import SamplingParams

__all__ = ["LogitsProcessorConformance"]

New = Callable[[], LogitsProcessor]

VOCAB = 200
STEPS = 40
"""Tokens that a request generates."""
SMALL: dict[str, Any] = {
    "cache": {"num_blocks": 14},
    "scheduler": {"max_num_batched_tokens": 8},
}
"""An engine that chunks prompts and preempts requests."""


class _Step(NamedTuple):
    masked: torch.Tensor
    """float32 [vocab]."""
    token: int
    """What was chosen."""


class LogitsProcessorConformance(TensorConformance):
    """Logits processors give logits for one request, by its tokens alone.

    Example that a request with required options needs: `request`, the options of a request.
    """

    kind = "logits_processor"
    example_keys = frozenset({"request"})

    @pytest.fixture
    def options(self, subject: Subject) -> dict[str, Any]:
        """Those of a request, in plain values."""
        return dict(subject.examples.get("request", {}))

    @pytest.fixture
    def params(self, subject: Subject, options: dict[str, Any]) -> SamplingParams:
        """Parameters of a request that asks for it, as the front end makes them."""
        name, struct = subject.provider, subject.found.provider.request_options
        assert struct is not None, f"{name!r} has no request_options, so nobody can ask for it"
        try:
            extensions = convert_extensions({name: options}, {name: struct})
        except InvalidRequestError as error:
            raise AssertionError(
                f"a request needs options ({error}); give them in conform.toml, as the table "
                f'[examples."logits_processor:{name}".request], or as Subject(examples={{"request":'
                " {...}})"
            ) from error
        return greedy(STEPS, extensions=extensions)

    @pytest.fixture
    def new(self, subject: Subject, params: SamplingParams) -> New:
        """Makes processors, each of a request of its own."""
        plugins, numbers = subject.manager(), itertools.count()
        struct = subject.found.provider.request_options

        def make() -> LogitsProcessor:
            own = msgspec.convert(msgspec.to_builtins(params), SamplingParams)
            made = plugins.create(
                subject.kind.name,
                subject.provider,
                request_id=f"r{next(numbers)}",
                params=own,
                request_options=msgspec.convert(own.extensions[subject.provider], struct),
                vocab_size=VOCAB,
            )
            return cast("LogitsProcessor", made)

        return make

    # Its logits

    def test_mask_gives_logits(self, new: New, seed: int) -> None:
        """Requires nothing.
        Does: generates after prompts of no, one and many tokens.
        Must: give float32 [vocab] without NaN and +inf, of which one is not -inf; where no token
        may follow it raises RequestError.
        """
        for number, prompt in enumerate(_prompts(seed)):
            for step, (masked, _) in enumerate(_generate(new(), prompt, seed + number)):
                what = f"mask of step {step} after {len(prompt)} prompt tokens"
                assert isinstance(masked, torch.Tensor), f"{what} gave {type(masked).__name__}"
                assert masked.dtype is torch.float32, f"{what} gave {masked.dtype}"
                assert masked.shape == (VOCAB,), f"{what} gave the shape {list(masked.shape)}"
                largest = float(masked.max())
                assert largest == largest, f"{what} gave NaN"
                assert largest > -torch.inf, f"{what} leaves no token; it must raise instead"
                assert largest < torch.inf, f"{what} has the largest logit {largest}"

    def test_other_rows_are_untouched(self, new: New, seed: int) -> None:
        """Requires nothing.
        Does: lends a row of a batch, as the kernel does, and compares the rows around it.
        Must: write to its own row only.
        """
        processor = new()
        processor.start((3, 1, 4, 1, 5), ())
        for step in range(STEPS):
            batch = torch.stack([_logits(seed, step + row) for row in range(3)])
            others = batch[[0, 2]].clone()
            masked = _masked(processor, batch[1])
            assert torch.equal(batch[[0, 2]], others), "mask wrote to rows of other requests"
            if masked is None:
                break
            processor.accept(int(masked.argmax()))

    # By tokens alone

    def test_a_resumed_request_gets_the_same(self, new: New, seed: int) -> None:
        """Requires nothing.
        Does: generates, and once more from each of several places on, with a new object that is
        told at its start of the tokens generated before.
        Must: give the same logits from there on as if the request had not been preempted.
        """
        for number, prompt in enumerate(_prompts(seed)):
            steps = _generate(new(), prompt, seed + number)
            tokens = [step.token for step in steps]
            for cut in (0, 1, 2, len(steps) // 2, len(steps)):
                resumed = new()
                resumed.start(prompt, tuple(tokens[:cut]))
                for at in range(cut, len(steps)):
                    _same(resumed, steps[at], seed + number, at, f"resumed after {cut} tokens")

    def test_the_same_text_gives_the_same(self, new: New, seed: int) -> None:
        """Requires nothing.
        Does: generates twice after the same prompts, with a new object each time.
        Must: give the same logits.
        """
        for number, prompt in enumerate(_prompts(seed)):
            steps = _generate(new(), prompt, seed + number)
            again = new()
            again.start(prompt, ())
            for at, step in enumerate(steps):
                _same(again, step, seed + number, at, "in another run")

    def test_requests_share_nothing(self, new: New, seed: int) -> None:
        """Requires nothing.
        Does: generates for two requests, each alone and then step by step in turn.
        Must: give each the same logits beside the other as alone.
        """
        prompts = ((1, 2, 3, 4, 1, 2, 3), (9, 8, 7, 9, 8, 7, 6, 5))
        alone = [_generate(new(), prompt, seed + n) for n, prompt in enumerate(prompts)]
        beside = [new() for _ in prompts]
        for processor, prompt in zip(beside, prompts, strict=True):
            processor.start(prompt, ())
        for at in range(max(map(len, alone))):
            for n, (processor, steps) in enumerate(zip(beside, alone, strict=True)):
                if at < len(steps):
                    _same(processor, steps[at], seed + n, at, "beside another request")

    # What it must leave alone

    def test_parameters_are_not_changed(self, new: New, seed: int) -> None:
        """Requires nothing.
        Does: compares the parameters of its request, and the options in them, before and after
        it generated.
        Must: leave them as they are: the request resumes with the same ones.
        """
        processor = new()
        params, options = processor.context.params, processor.context.request_options
        before, asked = msgspec.msgpack.encode(params), msgspec.msgpack.encode(options)
        _generate(processor, (5, 6, 7), seed)
        assert msgspec.msgpack.encode(params) == before, f"it changed the parameters to {params}"
        assert msgspec.msgpack.encode(options) == asked, f"it changed its options to {options}"

    def test_ended_requests_are_forgotten(self, new: New, seed: int) -> None:
        """Requires nothing.
        Does: generates for a few requests, and drops their objects as the kernel does, which
        does not tell them of the end.
        Must: keep none of them anywhere.
        """
        objects = []
        for number in range(5):
            processor = new()
            _generate(processor, (5, 6, number), seed)
            objects.append(weakref.ref(processor))
        del processor
        gc.collect()
        kept = sum(each() is not None for each in objects)
        assert not kept, f"{kept} of {len(objects)} objects are still referenced"

    # Cost

    def test_a_token_costs_the_same_in_any_text(self, new: New, seed: int) -> None:
        """Requires nothing.
        Does: counts the lines that `mask` and `accept` execute after 10 and after 1,000 tokens.
        Must: not grow with the text: the whole batch waits, at each token.
        """
        rng, costs = random.Random(seed), []
        for length in (10, 1000):
            processor = new()
            processor.start(tuple(rng.randrange(VOCAB) for _ in range(length)), ())
            costs.append(_cost(processor, seed))
        short, long = costs
        assert long <= 4 * short + 40, (
            f"a token executes {short} lines after 10 tokens, {long} after 1,000"
        )

    # In an engine

    def test_neighbours_get_the_same(
        self, subject: Subject, options: dict[str, Any], seed: int
    ) -> None:
        """Requires nothing.
        Does: generates in a real engine for requests of which every other one asks for it, and
        once more with none that does.
        Must: change no token of the others, and let those that asked for it be served.
        """
        with subject.launch() as engine:
            beside = _run(engine, seed, {subject.provider: options}, every=2)
            alone = _run(engine, seed, {}, every=1)
        assert beside[1::2] == alone[1::2], "the tokens of requests changed that did not ask for it"
        _served(beside[::2])

    def test_tokens_depend_on_the_text_alone(
        self, subject: Subject, options: dict[str, Any], seed: int
    ) -> None:
        """Requires nothing.
        Does: generates in a real engine with room for all, and in one that chunks prompts and
        preempts.
        Must: lead to the same tokens.
        """
        results = []
        for sections in ({}, SMALL):
            with subject.launch(**sections) as engine:
                results.append(_run(engine, seed, {subject.provider: options}, every=1))
        roomy, small = results
        _served(roomy)
        assert roomy == small, "chunking and preemption changed the tokens of a request"


def _prompts(seed: int) -> list[tuple[int, ...]]:
    rng = random.Random(seed)
    repeated = [rng.randrange(VOCAB) for _ in range(4)] * 5
    many = [rng.randrange(VOCAB) for _ in range(60)]
    return [(), (0,), (VOCAB - 1,), tuple(repeated), tuple(many)]


def _logits(seed: int, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed * 7919 + step)
    return torch.randn(VOCAB, generator=generator)


def _generate(processor: LogitsProcessor, prompt: Sequence[int], seed: int) -> list[_Step]:
    """The most likely token each time, until it refuses to go on."""
    steps: list[_Step] = []
    processor.start(tuple(prompt), ())
    for at in range(STEPS):
        masked = _masked(processor, _logits(seed, at))
        if masked is None:
            break
        given = isinstance(masked, torch.Tensor) and masked.numel() > 0
        steps.append(_Step(masked, int(masked.argmax()) if given else 0))
        processor.accept(steps[-1].token)
    return steps


def _masked(processor: LogitsProcessor, row: torch.Tensor) -> torch.Tensor | None:
    """None: it refuses to go on."""
    try:
        with torch.inference_mode():
            return processor.mask(row)
    except RequestError:
        return None


def _same(processor: LogitsProcessor, step: _Step, seed: int, at: int, where: str) -> None:
    with torch.inference_mode():
        masked = processor.mask(_logits(seed, at))
    assert torch.equal(masked, step.masked), f"other logits {where}, at its token {at}"
    processor.accept(step.token)


def _cost(processor: LogitsProcessor, seed: int) -> int:
    row = _logits(seed, 0)
    with torch.inference_mode():
        return lines_of(lambda: processor.accept(int(processor.mask(row).argmax())))


def _run(
    engine: Engine, seed: int, extensions: dict[str, Any], *, every: int
) -> list[tuple[list[int], str | None, str | None]]:
    """Tokens, finish reason and error of each prompt; every so-manyth has the extensions. All are
    sampled from logits, for which they ask by `min_tokens`."""
    prompts = prompts_of(seed, count=8)
    params = [
        greedy(24, min_tokens=1, extensions=extensions if number % every == 0 else {})
        for number in range(len(prompts))
    ]
    outputs = [output.outputs[0] for output in engine.generate(prompts, params)]
    return [(out.token_ids, out.finish_reason, out.error) for out in outputs]


def _served(results: Sequence[tuple[list[int], str | None, str | None]]) -> None:
    errors = [error for _, _, error in results if error is not None]
    assert len(errors) < len(results), f"every request that asked for it failed: {errors[0]}"
