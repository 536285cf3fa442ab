"""Any order of requests, steps, aborts and cache resets over the whole engine, in process.

Whatever happens around a request, it ends exactly once, with the output that it gets alone in
an engine with room for everything, after a bounded number of steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from framework import SamplingParams
from framework.frontend.llm_engine import LLMEngine
from framework.launcher import Engine
from hookspecs import PluginInfo, hookimpl
from hookspecs.errors import InvalidRequestError
from hookspecs.events import RequestAdmitted, RequestFinished, StepFinished
from hookspecs.types.outputs import CompletionOutput, RequestOutput
from hookspecs.types.sampling import OutputKind
from tests.core.scripted import launch_scripted
from tests.idle import assert_idle, core_of

MAX_MODEL_LEN = 48
EOS = 2
LETTERS = "abcdefghijklm"
VOCABULARY = 3 + len(LETTERS)
SEEDS = st.integers(0, 2**32)
PAST, FUTURE = 0.0, float(2**50)
SHARED = ([3 + i * 5 % 13 for i in range(34)], [3 + i * i % 13 for i in range(34)])
EVEN = [[0.0] * VOCABULARY]
SLOPED = [[i / 4 for i in range(VOCABULARY)], [-i / 4 for i in range(VOCABULARY)]]

POLICIES: dict[str, dict[str, Any]] = {
    "fcfs": {},
    "priority": {"priority": {"preempt_running": True}},
    "fair_share": {},
    "deadline": {},
    "priority,fair_share": {"fair_share": {"weights": {"a": 3.0}}},
    "deadline,priority": {"priority": {"preempt_running": True}},
}


class Watcher:
    """Counts the events of requests, and what the largest step was."""

    PLUGIN = PluginInfo(name="watcher", api=">=1.0,<2")

    def __init__(self) -> None:
        self.admitted: list[str] = []
        self.finished: list[str] = []
        self.most_tokens = 0
        self.most_running = 0
        self.num_preempted = 0

    @hookimpl
    def on_request_admitted(self, event: RequestAdmitted) -> None:
        self.admitted.append(event.request_id)

    @hookimpl
    def on_request_finished(self, event: RequestFinished) -> None:
        self.finished.append(event.request_id)

    @hookimpl
    def on_step_finished(self, event: StepFinished) -> None:
        self.most_tokens = max(self.most_tokens, event.num_scheduled_tokens)
        self.most_running = max(self.most_running, event.num_running)
        self.num_preempted += len(event.preempted_request_ids)


class Asked(NamedTuple):
    """A request as a user makes it."""

    prompt: list[int]
    params: SamplingParams
    options: dict[str, Any]


class Reference:
    """What a request gets alone, without prefix cache, with room for everything."""

    def __init__(self, model: str) -> None:
        self.engine = launch_scripted(
            scripted={"vocab_size": VOCABULARY},
            model={"name": model, "max_model_len": MAX_MODEL_LEN},
            cache={"block_size": 16, "num_blocks": 64, "enable_prefix_caching": False},
            scheduler={"max_num_batched_tokens": 1024},
        )
        self._known: dict[bytes, RequestOutput] = {}

    def output(self, prompt: list[int], params: SamplingParams) -> RequestOutput:
        key = msgspec.json.encode((prompt, params))
        if key not in self._known:
            (self._known[key],) = self.engine.generate([prompt], params)
        return self._known[key]


class Live:
    """A request that was added, and what came of it so far, by index."""

    def __init__(self, asked: Asked, expected: RequestOutput, expires: bool) -> None:
        self.asked = asked
        self.expected = expected
        self.expires = expires
        self.so_far = [CompletionOutput(index=i) for i in range(asked.params.n)]
        self.num_outputs = 0
        self.finished = False
        self.prompt_logprobs: Any = None

    def take(self, output: RequestOutput) -> None:
        assert not self.finished, "output after the last one"
        self.num_outputs += 1
        self.finished = output.finished
        if output.prompt_logprobs is not None:
            assert self.prompt_logprobs in (None, output.prompt_logprobs)
            self.prompt_logprobs = output.prompt_logprobs
        delta = self.asked.params.output_kind is OutputKind.DELTA
        for new in output.outputs:
            old = self.so_far[new.index]
            if old.finished:
                assert not delta and new == old
            if delta:
                new.text = old.text + new.text
                new.token_ids = old.token_ids + new.token_ids
                new.logprobs = _joined(old.logprobs, new.logprobs)
            assert new.text.startswith(old.text)
            assert new.token_ids[: len(old.token_ids)] == old.token_ids
            self.so_far[new.index] = new

    def check_end(self, *, aborted: bool) -> None:
        assert self.finished
        if self.asked.params.output_kind is OutputKind.FINAL_ONLY:
            assert self.num_outputs == 1
        if self.prompt_logprobs is not None:
            assert self.prompt_logprobs == self.expected.prompt_logprobs
        elif not self.expires and not aborted:
            assert self.expected.prompt_logprobs is None
        for given, expected in zip(self.so_far, self.expected.outputs, strict=True):
            if given.finish_reason == "abort":
                assert aborted
                shown = len(given.token_ids)
                assert given.token_ids == expected.token_ids[:shown]
                assert expected.text.startswith(given.text) or expected.stop_reason is not None
                assert given.logprobs == _first(expected.logprobs, shown)
            elif self.expires:
                assert (given.finish_reason, given.token_ids) == ("timeout", [])
            else:
                assert given == expected


def _joined(old: list[Any] | None, new: list[Any] | None) -> list[Any] | None:
    return new if old is None or new is None else old + new


def _first(values: list[Any] | None, count: int) -> list[Any] | None:
    return None if values is None else values[:count]


def make_request(random: Random) -> Asked:
    """Requests that share prefixes, and stop in every way there is."""
    pick = random.choice
    shared = pick(SHARED)[: random.randint(0, pick([10, 20, 34]))]
    tail = random.choices(range(3, VOCABULARY), k=random.randint(0, 4))
    script: dict[str, Any] = {}
    fields: dict[str, Any] = {"temperature": 0.0}
    kind = pick(["rule", "rule", "tokens", "ends", "fails", "logits", "logits"])
    if kind == "tokens":
        script["tokens"] = random.choices(range(VOCABULARY), k=random.randint(0, 20))
    elif kind == "ends":
        script["eos_after"] = random.randint(0, 20)
    elif kind == "fails":
        script["fail_at"] = random.randint(0, 20)
    elif kind == "logits":
        script["logits"] = pick([EVEN, SLOPED])
        fields |= {
            "temperature": pick([0.0, 0.7, 1.5]),
            "seed": random.randint(0, 3),
            "top_k": pick([0, 3]),
            "frequency_penalty": pick([0.0, 1.0]),
            "repetition_penalty": pick([1.0, 1.3]),
        }
        fields["n"] = 1 if fields["temperature"] == 0 else random.randint(1, 3)
    fields["max_tokens"] = pick([None, random.randint(1, 6), *random.choices(range(6, 30), k=4)])
    if fields["max_tokens"] and pick([True, False, False]):
        fields["min_tokens"] = random.randint(0, min(5, fields["max_tokens"]))
    if pick([True, False, False]):
        fields["stop"] = ["".join(random.choices(LETTERS, k=pick([1, 2, 2])))]
        fields["include_stop_str_in_output"] = pick([True, False])
    if pick([True, False, False]):
        fields["stop_token_ids"] = [random.randrange(3, VOCABULARY)]
    params = SamplingParams(
        ignore_eos=pick([True, False]),
        logprobs=pick([None, None, 0, 2]),
        prompt_logprobs=pick([None, None, None, 0, 1]),
        output_kind=pick(list(OutputKind)),
        extensions={"scripted": script},
        **fields,
    )
    options = {
        "priority": random.randint(-1, 1),
        "tenant": pick(["", "a", "b"]),
        "cache_salt": pick(["", "", "s"]),
        "deadline": pick([None, None, FUTURE, FUTURE + 1, PAST]),
    }
    return Asked([*shared, *tail] or [3], params, options)


class EngineMachine(RuleBasedStateMachine):
    """The engine, and beside it what each request must get."""

    def __init__(self, reference: Reference, model: str, policies: str) -> None:
        super().__init__()
        self.reference = reference
        self.model = model
        self.policies = policies.split(",")
        self.options = POLICIES[policies]
        self.watcher = Watcher()
        self.live: dict[str, Live] = {}
        self.started: Engine | None = None
        self.num_submitted = 0
        self.num_ids = 0

    @initialize(
        block_size=st.sampled_from([4, 3, 1, 8]),
        share=st.sampled_from([0.8, 0.5, 1.0, 1.3, 2.0]),
        caching=st.booleans(),
        window=st.sampled_from([None, None, 5, 8, 1]),
        hybrid=st.booleans(),
        max_num_seqs=st.sampled_from([5, 8, 3, 2, 1]),
        budget=st.sampled_from([64, 16, 5, 1]),
        chunk=st.sampled_from([0, 3]),
    )
    def start(
        self,
        block_size: int,
        share: float,
        caching: bool,
        window: int | None,
        hybrid: bool,
        max_num_seqs: int,
        budget: int,
        chunk: int,
    ) -> None:
        """`share`: the cache holds so many requests of the longest length."""
        groups = 2 if hybrid and window is not None else 1
        self.max_num_seqs, self.budget = max_num_seqs, budget
        self.started = launch_scripted(
            plugins=[self.watcher],
            scripted={
                "vocab_size": VOCABULARY,
                "sliding_window": window,
                "num_groups": groups,
            },
            model={"name": self.model, "max_model_len": MAX_MODEL_LEN},
            cache={
                "block_size": block_size,
                "num_blocks": max(2, int(share * groups * -(-MAX_MODEL_LEN // block_size))),
                "enable_prefix_caching": caching,
            },
            scheduler={
                "policies": self.policies,
                "max_num_seqs": max_num_seqs,
                "max_num_batched_tokens": budget,
                "long_prefill_token_threshold": chunk,
            },
            plugins_options=self.options,
        )

    @property
    def engine(self) -> Engine:
        assert self.started is not None
        return self.started

    @property
    def llm(self) -> LLMEngine:
        return self.engine.engine

    @rule(seed=SEEDS, count=st.sampled_from([6, 9, 3, 1]))
    def add(self, seed: int, count: int) -> None:
        random = Random(seed)
        for _ in range(count):
            self._add(f"r{self.num_ids}", make_request(random))
            self.num_ids += 1

    @rule(steps=st.integers(1, 3))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            if self.llm.has_unfinished_requests():
                self._step()

    @rule(steps=st.integers(8, 24))
    def step_on(self, steps: int) -> None:
        self.step(steps)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self._abort(data.draw(st.sampled_from(sorted(self.live))))
        assert self.llm.abort_request(["never seen"]) == []

    @precondition(lambda self: len(self.live) > 10)
    @rule()
    def abort_all(self) -> None:
        for request_id in list(self.live):
            self._abort(request_id)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), seed=SEEDS)
    def use_an_id_again(self, data: st.DataObject, seed: int) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.live)))
        request = make_request(Random(seed))
        with pytest.raises(InvalidRequestError):
            self.llm.add_request(request_id, request.prompt, request.params)
        self._abort(request_id)
        self._add(request_id, request)

    @rule()
    def reset_prefix_cache(self) -> None:
        used = core_of(self.engine).parts.kv_cache.blocks_in_use()
        assert self.llm.reset_prefix_cache() is (used == 0)

    @invariant()
    def nothing_is_left_of_those_that_ended(self) -> None:
        if self.started is None:
            return
        assert self.llm.num_requests == len(self.live)
        running = sum(not output.finished for r in self.live.values() for output in r.so_far)
        assert core_of(self.engine).num_requests <= running
        if not self.live and not self.llm.has_unfinished_requests():
            assert_idle(self.engine)

    def teardown(self) -> None:
        if self.started is None:
            return
        try:
            self._run_to_the_end()
        finally:
            self.engine.shutdown()

    def _run_to_the_end(self) -> None:
        # The first running request of the order gets a token in each step. So the first waiting
        # one starts, at the latest, when all those that run have got all theirs, and it then
        # needs as many steps as it has tokens.
        totals = sum(
            (len(live.asked.prompt) + len(expected.token_ids) + 1)
            for live in self.live.values()
            for expected in live.expected.outputs
        )
        children = sum(live.asked.params.n for live in self.live.values())
        bound = (children + 1) * totals + 1
        steps = 0
        while self.llm.has_unfinished_requests():
            assert steps <= bound, f"{len(self.live)} requests still run after {steps} steps"
            self._step()
            steps += 1
        assert not self.live
        assert_idle(self.engine)
        watcher = self.watcher
        assert len(watcher.finished) == len(set(watcher.finished)) == self.num_submitted
        assert len(watcher.admitted) == len(set(watcher.admitted))
        assert watcher.most_tokens <= self.budget
        assert watcher.most_running <= self.max_num_seqs

    def _add(self, request_id: str, request: Asked) -> None:
        prompt, params, options = request
        limit, cache = MAX_MODEL_LEN, self.llm.info.cache_tokens
        room = min(limit, cache) - len(prompt)
        max_tokens = min(room if params.max_tokens is None else params.max_tokens, limit)
        max_tokens = min(max_tokens, limit - len(prompt))
        fits = len(prompt) + max(1, max_tokens) <= cache
        if not fits or params.min_tokens > max_tokens:
            with pytest.raises(InvalidRequestError):
                self.llm.add_request(request_id, prompt, params, **options)
            return
        self.llm.add_request(request_id, prompt, params, **options)
        alone = msgspec.structs.replace(
            params, max_tokens=max_tokens, output_kind=OutputKind.FINAL_ONLY
        )
        expires = "deadline" in self.policies and options["deadline"] == PAST
        self.live[request_id] = Live(request, self.reference.output(prompt, alone), expires)
        self.num_submitted += params.n

    def _step(self) -> None:
        core = core_of(self.engine)
        waited = core.num_requests
        outputs = self.llm.step()
        assert outputs or not (waited and core.last_step_was_empty), "nobody got anything"
        for output in outputs:
            live = self.live[output.request_id]
            live.take(output)
            if live.finished:
                live.check_end(aborted=False)
                del self.live[output.request_id]

    def _abort(self, request_id: str) -> None:
        live = self.live.pop(request_id)
        (output,) = self.llm.abort_request(request_id)
        live.take(output)
        live.check_end(aborted=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A scripted model whose tokens are letters."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    pieces = ["<pad>", "<bos>", "<eos>", *LETTERS]
    backend = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, []))
    backend.decoder = decoders.ByteLevel()
    path: Path = tmp_path_factory.mktemp("letters")
    PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>"
    ).save_pretrained(path)
    return f"scripted:{path}"


@pytest.fixture(scope="module")
def reference(model: str) -> Iterator[Reference]:
    made = Reference(model)
    with made.engine:
        yield made


@pytest.mark.parametrize("policies", POLICIES)
def test_any_order_of_events(reference: Reference, model: str, policies: str) -> None:
    class Machine(EngineMachine):
        def __init__(self) -> None:
            super().__init__(reference, model, policies)

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=12,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
