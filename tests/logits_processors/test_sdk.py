"""`LogitsProcessors` alone, as a worker uses it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any, cast

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from framework.sdk.logits_processors import LogitsProcessors
from hookspecs import EngineConfig, SamplingParams
from hookspecs.contracts.logits import (
    LogitsProcessor,
    LogitsProcessorContext,
    SampledBatch,
    Sampler,
    SamplerContext,
)
from hookspecs.errors import RequestFailedError
from hookspecs.types.columns import Int32Column
from hookspecs.types.step import LogprobColumns, NewRequest
from tests.logits_processors.rules import HEARD, Affine, Echo, Faulty, Options

VOCAB = 5
KINDS: dict[str, type[LogitsProcessor]] = {"affine": Affine, "echo": Echo, "faulty": Faulty}
OPTIONS = {"affine": Affine.Options, "echo": Echo.Options, "faulty": Options}


class Greedy(Sampler):
    """Takes the most likely token; keeps what it was given."""

    def __init__(self) -> None:
        super().__init__(
            SamplerContext(config=EngineConfig(), vocab_size=VOCAB, max_num_seqs=8, device="cpu")
        )
        self.given: list[tuple[torch.Tensor, list[int]]] = []

    def add(self, request: NewRequest) -> None:
        pass

    def remove(self, slot: int) -> None:
        pass

    def sample(self, logits: torch.Tensor, slots: Int32Column) -> SampledBatch:
        self.given.append((logits, slots.tolist()))
        return SampledBatch(token_ids=cast(Int32Column, logits.argmax(-1).numpy().astype(np.int32)))

    def prompt_logprobs(
        self, logits: torch.Tensor, targets: torch.Tensor, num_logprobs: int
    ) -> LogprobColumns:
        raise NotImplementedError


def create(request: NewRequest, vocab_size: int) -> Sequence[LogitsProcessor]:
    params = request.sampling_params
    if "refused" in params.extensions:
        raise RequestFailedError("refused", request_id=request.request_id, plugin="rules")
    return [
        KINDS[name](
            LogitsProcessorContext(
                config=EngineConfig(),
                plugin="rules",
                name=name,
                request_id=request.request_id,
                params=params,
                request_options=msgspec.convert(params.extensions[name], OPTIONS[name]),
                vocab_size=vocab_size,
            )
        )
        for name in sorted(params.extensions)
    ]


def request(slot: int, extensions: dict[str, Any], **fields: Any) -> NewRequest:
    given: dict[str, Any] = {
        "request_id": f"r{slot}",
        "slot": slot,
        "token_ids": [1, 2, 3],
        "num_prompt_tokens": 2,
        "num_computed_tokens": 0,
        "block_ids": ([],),
        "sampling_params": SamplingParams(extensions=extensions),
        **fields,
    }
    return NewRequest(**given)


def column(*values: int) -> Int32Column:
    return np.array(values, dtype=np.int32)


AFFINE = {"factor": 2.0, "token": 1, "bonus": 5.0}
extension_sets = st.sampled_from(
    [
        {},
        {"affine": AFFINE},
        {"faulty": {"fault": "mask"}},
        {"faulty": {"fault": "nan"}},
        {"affine": AFFINE, "faulty": {"fault": "shape"}},
    ]
)


@given(
    slots=st.dictionaries(st.integers(0, 7), extension_sets, max_size=8), seed=st.integers(0, 99)
)
def test_a_row_is_its_own_request_s(slots: dict[int, dict[str, Any]], seed: int) -> None:
    subject, sampler = LogitsProcessors(create, VOCAB), Greedy()
    for slot, extensions in slots.items():
        assert subject.add(request(slot, extensions)) is None
    logits = torch.randn(len(slots), VOCAB, generator=torch.Generator().manual_seed(seed))
    expected = logits.clone()
    for row, extensions in enumerate(slots.values()):
        if "affine" in extensions:
            expected[row] *= AFFINE["factor"]
            expected[row, 1] += AFFINE["bonus"]
    sampled = subject.sample(sampler, logits, column(*slots))
    bad = [row for row, extensions in enumerate(slots.values()) if "faulty" in extensions]
    good = [row for row in range(len(slots)) if row not in bad]
    assert sorted(sampled.failures) == bad
    assert all(f.plugin == "rules" and not f.poisoned for f in sampled.failures.values())
    assert sampled.token_ids[good].tolist() == expected[good].argmax(-1).tolist()
    if good:
        ((seen, seen_slots),) = sampler.given
        assert torch.equal(seen, expected[good])
        assert seen_slots == [slot for i, slot in enumerate(slots) if i in good]


def test_without_processors_it_is_the_sampler_s_call() -> None:
    subject, sampler = LogitsProcessors(create, VOCAB), Greedy()
    assert subject.add(request(3, {})) is None
    assert 3 not in subject
    logits = torch.rand(1, VOCAB)
    subject.sample(sampler, logits, column(3))
    assert sampler.given[0][0] is logits


def test_it_imports_no_torch_before_a_request_needs_it() -> None:
    program = (
        "import sys; import framework.sdk.logits_processors as m; import numpy as np\n"
        "p = m.LogitsProcessors(lambda r, v: (), 9); p.remove(1)\n"
        "assert p.apply(None, np.zeros(1, np.int32)) == {}\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_refused_request_leaves_nothing() -> None:
    subject = LogitsProcessors(create, VOCAB)
    asked: list[dict[str, Any]] = [
        {"refused": {}},
        {"echo": {"tag": "x"}, "faulty": {"fault": "start"}},
    ]
    for extensions in asked:
        failure = subject.add(request(1, extensions))
        assert failure is not None and failure.plugin == "rules" and not failure.poisoned
        assert 1 not in subject


def test_a_failure_of_accept_is_one_of_the_next_token_and_stays_until_the_slot_is_free() -> None:
    subject = LogitsProcessors(create, VOCAB)
    subject.add(request(1, {"faulty": {"fault": "accept"}}))
    assert subject.apply(torch.rand(1, VOCAB), column(1)) == {}
    subject.accept(column(1), column(4))
    for _ in range(2):  # the next step may be on its way already
        (failure,) = subject.apply(torch.rand(2, VOCAB), column(0, 1)).items()
        assert failure[0] == 1 and "raised in accept" in failure[1].message
        subject.accept(column(1), column(4))
    subject.remove(1)
    assert subject.apply(torch.rand(1, VOCAB), column(1)) == {}


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_logits_that_the_model_spoiled_are_the_sampler_s_to_report(value: float) -> None:
    subject = LogitsProcessors(create, VOCAB)
    subject.add(request(1, {"echo": {"tag": "x"}}))
    HEARD.clear()
    logits = torch.full((1, VOCAB), value)
    assert subject.apply(logits, column(1)) == {}
    assert not HEARD


def test_a_prompt_of_embeddings_has_no_tokens() -> None:
    subject = LogitsProcessors(create, VOCAB)
    subject.add(request(1, {"echo": {"tag": "x"}}, prompt_embeds=np.zeros((2, 4), np.float32)))
    assert ("x", "start", ([], [3])) in HEARD


def test_an_interrupt_is_not_a_processor_s() -> None:
    class Interrupted(Affine):
        def accept(self, token: int) -> None:
            raise KeyboardInterrupt

    subject = LogitsProcessors(
        lambda r, v: [
            Interrupted(
                LogitsProcessorContext(
                    config=EngineConfig(),
                    name="affine",
                    request_id=r.request_id,
                    params=r.sampling_params,
                    request_options=Affine.Options(),
                    vocab_size=v,
                )
            )
        ],
        VOCAB,
    )
    subject.add(request(1, {"affine": {}}))
    with pytest.raises(KeyboardInterrupt):
        subject.accept(column(1), column(2))


class Reaching(LogitsProcessor):
    """Writes to all that it can reach from its row."""

    def start(self, prompt: Sequence[int], generated: Sequence[int]) -> None:
        pass

    def accept(self, token: int) -> None:
        pass

    def mask(self, logits: torch.Tensor) -> torch.Tensor:
        if logits._base is not None:
            logits._base.fill_(-5)
        whole = torch.empty(0).set_(logits.untyped_storage())
        whole.fill_(-7)
        return logits


def test_a_processor_reaches_no_row_but_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "affine", Reaching)
    subject = LogitsProcessors(create, VOCAB)
    for slot, extensions in enumerate(({}, {"affine": AFFINE}, {})):
        assert subject.add(request(slot, extensions)) is None
    logits = torch.randn(3, VOCAB)
    expected = logits.clone()
    expected[1] = -7
    assert subject.apply(logits, column(0, 1, 2)) == {}
    assert torch.equal(logits, expected)
