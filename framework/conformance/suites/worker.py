"""Suite of workers, driven by the scheduler through a mini kernel, and in a real engine.

The model is the one that the settings name, in `conform.toml`:

    [settings.model]
    name = "ngram:alice.txt"

Without one it is the first of the kit's own that the worker loads: `scripted`, which has no files,
or a Llama of a few thousand random weights in float32, in the layout of Hugging Face
(`worlds/tiny_model.py`). Of the latter the weights are known, so some tests ask for more there.

Tokens are compared with those of the same worker for the same request alone, in one piece: what
the right ones are is not the kit's to say.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from framework.conformance.base import Conformance, lacking, requires
from framework.conformance.subject import Subject
from framework.conformance.worlds.cost import lines_of
from framework.conformance.worlds.engines import greedy
from framework.conformance.worlds.forced_tokens import (
    FIRST,
    FORCED,
    OffersForcedTokens,
    forced,
)
from framework.conformance.worlds.leftovers import Leftovers
from framework.conformance.worlds.tiny_model import EMBEDDING, HEAD, tiny_weights
from framework.conformance.worlds.workers import Ask, WorkerBench, WorkerWorld, world_of
from framework.conformance.worlds.workload import seeds
from framework.core.request import Request
from framework.launcher import Engine
from framework.plugins.construct import import_target
from hookspecs.contracts.worker import Worker, WorkerCapability
from hookspecs.errors import InvalidRequestError, UnsupportedFeatureError
from hookspecs.types.commands import ListAdapters
from hookspecs.types.control import WakeTag
from hookspecs.types.kv import KVLayerSpec
from hookspecs.types.outputs import RequestOutput
from hookspecs.types.pooling import PoolingParams, PoolingType
from hookspecs.types.request import FinishReason
from hookspecs.types.sampling import SamplingParams
from hookspecs.types.step import GrammarOutput, LogprobColumns, ModelRunnerOutput, SchedulerOutput

__all__ = ["WorkerConformance"]

Start = Callable[..., WorkerBench]
CHEAP_LINES = 20_000
"""Lines of Python that `rate` may execute: looking for a package takes hundreds."""
REFUSALS = (InvalidRequestError, UnsupportedFeatureError)
NO_WEIGHT = "conformance.no_such_weight"


class WorkerConformance(Conformance):
    """A worker gives each request the tokens that it would get alone."""

    kind = "worker"

    @pytest.fixture
    def world(self, subject: Subject) -> WorkerWorld:
        """The worker's model and configuration."""
        return world_of(subject)

    @pytest.fixture
    def start(self, world: WorkerWorld) -> Iterator[Start]:
        """Makes workers that are ready for steps; they are shut down after the test."""
        benches: list[WorkerBench] = []

        def start(**sizes: Any) -> WorkerBench:
            benches.append(WorkerBench(world, **sizes))
            return benches[-1]

        yield start
        for bench in benches:
            bench.close()

    # Life

    def test_its_rate_is_cheap(self, subject: Subject) -> None:
        """Requires nothing.
        Does: asks how well this machine suits it, and counts the lines of Python that it takes.
        Must: give an int, the same each time, at the cost of a look at what is installed.
        """
        rate: Callable[[], int] = import_target(subject.found).rate
        first, second = rate(), rate()
        assert type(first) is int, f"rate gave {first!r}; it gives an int"
        assert first == second, f"rate gave {first}, then {second}"
        lines = lines_of(rate)
        assert lines <= CHEAP_LINES, f"rate executes {lines} lines; at most {CHEAP_LINES} are cheap"

    def test_it_lives_twice(self, start: Start, world: WorkerWorld) -> None:
        """Requires nothing.
        Does: starts, generates and shuts down a worker, and another one after it.
        Must: describe its layers and device in the same way and give the same tokens both times.
        """
        lives = []
        for _ in range(2):
            bench = start()
            specs, device = bench.worker.kv_layer_specs(), bench.worker.device
            assert isinstance(device, str) and device, f"device is {device!r}; it is a name"
            assert specs and all(isinstance(spec, KVLayerSpec) for spec in specs), (
                f"kv_layer_specs gave {specs}; needed is a KVLayerSpec of each layer, at least one"
            )
            layers = [spec.layer for spec in specs]
            assert len(set(layers)) == len(layers), f"kv_layer_specs names a layer twice: {layers}"
            wrong = [spec for spec in specs if spec.bytes_per_token < 1]
            assert not wrong, (
                f"{wrong[:1]} keeps {wrong and wrong[0].bytes_per_token} bytes a token"
            )
            lives.append((specs, device, bench.run(world.asks(1))))
            bench.worker.shutdown()
        assert lives[0] == lives[1], "a second worker is not as the first one was"

    def test_shutdown_at_any_time(self, world: WorkerWorld, start: Start) -> None:
        """Requires nothing.
        Does: shuts down after the constructor, init_device, load_model, and after steps, twice each
        time.
        Must: give back what there is, and raise nothing: a start that fails half-way ends so.
        """
        for count in range(3):
            worker = world.create()
            for method in (worker.init_device, worker.load_model)[:count]:
                method()
            worker.shutdown()
            worker.shutdown()
        bench = start()
        bench.add(world.asks(1)[0])
        bench.kernel.step()
        bench.worker.shutdown()
        bench.worker.shutdown()

    def test_nothing_is_left(self, start: Start, world: WorkerWorld) -> None:
        """Requires nothing.
        Does: starts, generates, shuts down, and looks for threads and child processes.
        Must: leave none behind.
        """
        leftovers = Leftovers()
        bench = start()
        bench.run(world.asks(1))
        bench.worker.shutdown()
        names = leftovers.names()
        assert not names, f"these live on after the shutdown: {', '.join(names)}"

    def test_cache_bytes_are_as_configured(self, world: WorkerWorld) -> None:
        """Requires nothing.
        Does: asks for the bytes of the KV cache, with `cache.kv_bytes` and without.
        Must: give the configured number, and without one some bytes.
        """
        for configured in (None, 123_456, 1 << 20):
            sections = {} if configured is None else {"kv_bytes": configured, "num_blocks": None}
            worker = world.create(world.sized(cache=sections))
            try:
                worker.init_device()
                worker.load_model()
                given = worker.available_kv_bytes()
            finally:
                worker.shutdown()
            assert type(given) is int and given > 0, f"available_kv_bytes is {given!r}"
            assert configured in (None, given), (
                f"available_kv_bytes is {given} with cache.kv_bytes = {configured}"
            )

    def test_commands_are_marked(self, world: WorkerWorld) -> None:
        """Requires nothing.
        Does: looks at all commands.
        Must: list those of the contract and its own, each marked with `command`; nothing else can
        be called from outside.
        """
        worker = world.create()
        commands = worker.commands()
        worker.shutdown()
        unmarked = [
            name for name, call in commands.items() if not hasattr(call, "__worker_command__")
        ]
        assert not unmarked, f"commands lists {unmarked}, which are not marked as commands"
        lost = sorted(_marked(Worker) - commands.keys())
        assert not lost, f"commands lacks {', '.join(lost)} of the contract"

    # Tokens

    def test_each_row_gets_what_it_is_due(self, start: Start, world: WorkerWorld) -> None:
        """Requires nothing.
        Does: runs prompts in pieces, so that a step has rows that sample and others.
        Must: give one token to each row that samples and none to others, in int32 columns.
        """
        bench = start(max_num_batched_tokens=5)
        seen: list[tuple[SchedulerOutput, ModelRunnerOutput]] = []
        bench.kernel.on_result = lambda output, result: seen.append((output, result))
        bench.run(world.asks(2))
        assert any(not output.samples.all() for output, _ in seen), "no prompt came in pieces"
        for output, result in seen:
            for name in ("num_sampled", "token_ids"):
                column = getattr(result, name)
                kind = getattr(column, "dtype", type(column).__name__)
                assert kind == np.int32, f"{name} is of the type {kind}; needed is int32"
            given, due = result.num_sampled.tolist(), output.samples.astype(int).tolist()
            assert given == due, f"rows that sample {due} got {given} tokens"

    def test_neighbours_do_not_matter(self, start: Start, world: WorkerWorld, seed: int) -> None:
        """Requires nothing.
        Does: runs requests together, and in the opposite order.
        Must: give each the tokens that it gets alone: the result of its own row.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        _same(start().run(asks), alone, asks, "beside others")
        backwards = start().run(asks[::-1])[::-1]
        _same(backwards, alone, asks, "beside others, in the opposite order")

    def test_slots_do_not_matter(self, start: Start, world: WorkerWorld, seed: int) -> None:
        """Requires nothing.
        Does: runs each request alone, but in another slot, after others were there that gave up.
        Must: give the tokens that it gets in the first slot.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        bench, given = start(), []
        for number, ask in enumerate(asks):
            others = [bench.add(asks[(number + each) % len(asks)]) for each in range(1, 4)]
            request = bench.add(ask)
            bench.kernel.step()
            for other in others:
                if other.request_id in bench.kernel.requests:
                    bench.kernel.abort(other)
            bench.finish()
            given.append(request.output_token_ids)
        _same(given, alone, asks, "in another slot")

    def test_pieces_do_not_matter(self, start: Start, world: WorkerWorld, seed: int) -> None:
        """Requires nothing.
        Does: runs requests with so few tokens a step that prompts come in pieces of 1 to 7.
        Must: give the tokens that they get in one piece.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        for budget in (1, 3, 7):
            given = start(max_num_batched_tokens=budget).run(asks)
            _same(given, alone, asks, f"with {budget} tokens a step")

    def test_cached_prefixes_do_not_matter(
        self, start: Start, world: WorkerWorld, seed: int
    ) -> None:
        """Requires nothing.
        Does: runs requests again, with the blocks of the first time in the prefix cache.
        Must: go on from num_computed_tokens, and give the tokens that they get without a cache.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        bench = start(enable_prefix_caching=True)
        _same(bench.run(asks), alone, asks, "with a prefix cache")
        again = [bench.add(ask) for ask in asks]
        bench.finish()
        assert any(request.num_cached_tokens for request in again), "the prefix cache had nothing"
        given = [request.output_token_ids for request in again]
        _same(given, alone, asks, "with a cached prefix")

    def test_preempted_requests_go_on(self, start: Start, world: WorkerWorld, seed: int) -> None:
        """Requires nothing.
        Does: takes slots and blocks from all running requests every other step.
        Must: take the tokens of a request that resumes as it is told them, and give the same ones
        as without; nothing is left in the slots that others get then.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        for caching in (False, True):
            bench = start(enable_prefix_caching=caching, num_blocks=24)
            _same(bench.run(asks, preempt_every=2), alone, asks, "after preemptions")

    def test_released_slots_are_forgotten(
        self, start: Start, world: WorkerWorld, seed: int
    ) -> None:
        """Requires nothing.
        Does: gives the only slot to requests with parameters of their own, which give up, and then
        to plain ones.
        Must: keep nothing of the former.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        bench, given = start(max_num_seqs=1), []
        for number, ask in enumerate(asks):
            bench.add(_peculiar(asks[number - 1], number))
            bench.kernel.step()
            bench.kernel.step()
            for request in list(bench.kernel.requests.values()):
                bench.kernel.abort(request)
            given += bench.run([ask])
        _same(given, alone, asks, "in a slot where another was before")

    def test_seeded_draws_repeat(self, start: Start, world: WorkerWorld, seed: int) -> None:
        """Requires nothing.
        Does: draws with seeds, in batches, in pieces and after preemptions.
        Must: give the tokens that the request gets alone: a draw depends on seed and position.
        """
        asks, alone = world.asks(seed, seeded=True), world.alone(seed, seeded=True)
        _same(start().run(asks), alone, asks, "beside others")
        given = start(max_num_batched_tokens=6).run(asks[::-1], preempt_every=9)[::-1]
        _same(given, alone, asks, "in pieces, after preemptions")

    def test_a_failing_request_ends_alone(
        self, start: Start, world: WorkerWorld, seed: int
    ) -> None:
        """Requires nothing.
        Does: runs requests to which no token is allowed (the only one that is allowed may not come
        yet) among others.
        Must: end these with a RowFailure that says why, and leave the others as they are.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        bench = start()
        good = []
        bad = []
        for ask in asks:
            good.append(bench.add(ask))
            bad.append(bench.add(Ask(ask.prompt, _impossible())))
        bench.finish()
        for request in bad:
            reason = bench.kernel.ended[request.request_id]
            assert reason is FinishReason.ERROR, (
                f"a request to which no token is allowed ended with {reason.name} and "
                f"{request.output_token_ids}"
            )
            failure = bench.kernel.failures[request.request_id]
            assert failure.message, "the RowFailure of a request says nothing"
        _same([request.output_token_ids for request in good], alone, asks, "beside some that fail")

    def test_random_workloads(self, start: Start, world: WorkerWorld, seed: int) -> None:
        """Requires nothing.
        Does: random arrivals, aborts, budgets, slots and preemptions, in a cache that is too small.
        Must: give every request that ends by itself the tokens that it gets alone.
        """
        for number in seeds(seed + 7, 3):
            rng = random.Random(number)
            bench = start(
                enable_prefix_caching=True,
                num_blocks=rng.randint(12, 24),
                max_num_seqs=rng.randint(1, 5),
                max_num_batched_tokens=rng.choice((2, 6, 40)),
            )
            asks, alone = world.asks(seed), world.alone(seed)
            coming = [rng.randrange(len(asks)) for _ in range(16)]
            added: list[tuple[int, Request]] = []
            for _ in range(5000):
                if not coming and not bench.kernel.requests:
                    break
                if coming and rng.random() < 0.6:
                    which = coming.pop()
                    added.append((which, bench.add(asks[which])))
                if rng.random() < 0.05 and bench.kernel.requests:
                    bench.kernel.abort(rng.choice([*bench.kernel.requests.values()]))
                if rng.random() < 0.05:
                    bench.kernel.scheduler.preempt_all()
                bench.kernel.step()
            left = sorted(bench.kernel.requests)
            assert not left, f"{left} had not ended after 5000 steps (workload seed {number})"
            done = [
                (which, request)
                for which, request in added
                if bench.kernel.ended[request.request_id] is FinishReason.LENGTH
            ]
            _same(
                [request.output_token_ids for _, request in done],
                [alone[which] for which, _ in done],
                [asks[which] for which, _ in done],
                f"in the random workload of seed {number}",
            )

    def test_tokens_in_an_engine(self, world: WorkerWorld, seed: int) -> None:
        """Requires nothing.
        Does: generates in a real engine with a small cache, twice.
        Must: give the tokens that each request gets alone, however it is scheduled.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        with world.launch(cache={"num_blocks": 14}) as engine:
            for _ in range(2):
                _same(_generated(engine, asks), alone, asks, "in an engine")

    # Capabilities

    @requires(WorkerCapability.PROMPT_LOGPROBS)
    def test_prompt_logprobs(self, start: Start, world: WorkerWorld, seed: int) -> None:
        """Requires prompt_logprobs.
        Does: asks for the logprobs of prompts, in one piece and in several.
        Must: give each position but the first its token and the most likely ones, the same ones in
        any pieces.
        """
        asks = [
            Ask(ask.prompt, SamplingParams(max_tokens=2, temperature=0, prompt_logprobs=2))
            for ask in world.asks(seed)
        ]
        found = []
        for budget in (512, 3):
            bench = start(max_num_batched_tokens=budget)
            requests = [bench.add(ask) for ask in asks]
            bench.finish()
            pieces = bench.kernel.prompt_pieces
            found.append([_joined(pieces.get(each.request_id, [])) for each in requests])
        for ask, whole, parts in zip(asks, *found, strict=True):
            counts, tokens, logprobs, ranks = whole
            wanted = [0, *[3] * (len(ask.prompt) - 1)]
            assert counts == wanted, (
                f"a prompt of {len(ask.prompt)} has counts {counts}, not {wanted}"
            )
            assert tokens[::3] == ask.prompt[1:], (
                f"the positions begin with {tokens[::3]}, not with the prompt's {ask.prompt[1:]}"
            )
            assert all(np.isfinite(logprobs)) and max(logprobs, default=0) <= 1e-5, (
                f"logprobs are {logprobs}; they are finite and at most 0"
            )
            assert all(rank >= 1 for rank in ranks), f"ranks are {ranks}; they begin with 1"
            assert parts[:2] == whole[:2] and np.allclose(parts[2], logprobs, atol=1e-3), (
                f"in pieces of 3 tokens the logprobs are {parts}, in one {whole}"
            )

    @lacking(WorkerCapability.PROMPT_LOGPROBS)
    def test_prompt_logprobs_are_refused(self, world: WorkerWorld) -> None:
        """Requires a worker that does not declare prompt_logprobs.
        Does: asks an engine for the logprobs of a prompt.
        Must: let the request be refused, not answered without them.
        """
        with world.launch() as engine:
            _refused(lambda: engine.generate([_prompt(world)], greedy(2, prompt_logprobs=1)))

    @requires(WorkerCapability.POOLING)
    def test_pooling(self, start: Start, world: WorkerWorld, seed: int) -> None:
        """Requires pooling.
        Does: asks for vectors beside requests for tokens: of both types, normalized or not, cut,
        alone and in pieces.
        Must: give the same vector in any company and pieces, of the length that was asked for, and
        leave the tokens of the others as they are.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        wanted = [
            PoolingParams(pooling=PoolingType.MEAN),
            PoolingParams(pooling=PoolingType.LAST, normalize=False),
            PoolingParams(pooling=PoolingType.MEAN, normalize=False, dimensions=2),
        ]
        size = world.model.info.hidden_size
        found = []
        for budget in (512, 5):
            bench = start(max_num_batched_tokens=budget)
            vectors = []
            for params in wanted:
                request = bench.add(asks[0], pooling=params)
                bench.finish()
                vectors.append(bench.kernel.vectors[request.request_id])
            pooled = [bench.add(asks[0], pooling=params) for params in wanted]
            _same(bench.run(asks), alone, asks, "beside pooling requests")
            vectors += [bench.kernel.vectors[request.request_id] for request in pooled]
            found += [vectors[:3], vectors[3:]]
        for vectors in found:
            for params, vector, first in zip(wanted, vectors, found[0], strict=True):
                length = params.dimensions or size or len(vector)
                assert len(vector) == length, f"{params} gave {len(vector)} elements, not {length}"
                assert np.allclose(vector, first, rtol=1e-3, atol=1e-4), (
                    f"{params} gave {vector[:4]} alone and {first[:4]} in company or in pieces"
                )
        norm = float(np.linalg.norm(found[0][0]))
        assert abs(norm - 1) < 1e-3, f"a normalized vector has the length {norm}"

    @lacking(WorkerCapability.POOLING)
    def test_pooling_is_refused(self, world: WorkerWorld) -> None:
        """Requires a worker that does not declare pooling.
        Does: asks an engine for a vector.
        Must: let that be refused.
        """
        with world.launch() as engine:
            _refused(lambda: engine.embed([_prompt(world)]))

    @requires(WorkerCapability.SLEEP)
    def test_sleep(self, world: WorkerWorld, seed: int) -> None:
        """Requires sleep.
        Does: puts an engine to sleep at levels 1 and 2, with a request in the middle of its output,
        and wakes it part by part.
        Must: give the same tokens afterwards, to that request too.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        with world.launch() as engine:
            for level in (1, 2, 1):
                stream = _stream(engine, asks[0])
                tokens = [*next(stream).outputs[0].token_ids]
                engine.sleep(level, mode="keep")
                asleep = engine.status().asleep
                for tag in WakeTag:
                    if tag in asleep:
                        engine.wake_up([tag])
                for output in stream:
                    tokens += output.outputs[0].token_ids
                where = f"after a sleep at level {level}"
                _same([tokens], alone[:1], asks[:1], where)
                _same(_generated(engine, asks), alone, asks, where)

    @lacking(WorkerCapability.SLEEP)
    def test_sleep_is_refused(self, world: WorkerWorld) -> None:
        """Requires a worker that does not declare sleep.
        Does: asks an engine to give memory back, then to generate.
        Must: let that be refused, and go on.
        """
        with world.launch() as engine:
            for level in (1, 2):
                _refused(lambda level=level: engine.sleep(level))  # type: ignore[misc]
            tokens = _generated(engine, [Ask(_prompt(world), greedy(2))])
            assert len(tokens[0]) == 2, f"after a refused sleep a request got {tokens[0]}"

    @requires(WorkerCapability.UPDATE_WEIGHTS)
    def test_wrong_weights_change_nothing(self, world: WorkerWorld, seed: int) -> None:
        """Requires update_weights.
        Does: gives weights of names that there are not, of a wrong shape, and a path that does not
        exist.
        Must: refuse each with InvalidRequestError, and replace none, nor those that would fit.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        wrong: list[dict[str, Any]] = [
            {"tensors": {NO_WEIGHT: np.zeros(3, np.float32)}},
            {"path": "/conformance/no/such/directory"},
        ]
        if world.is_tiny_model:
            fits = {HEAD: tiny_weights()[HEAD][::-1].copy()}
            wrong.append({"tensors": {**fits, NO_WEIGHT: np.zeros(3, np.float32)}})
            wrong.append({"tensors": {HEAD: np.zeros((3, 3), np.float32)}})
        with world.launch() as engine:
            for arguments in wrong:
                refused = _error_of(lambda given=arguments: engine.update_weights(**given))  # type: ignore[misc]
                assert isinstance(refused, InvalidRequestError), (
                    f"update_weights of {_shown(arguments)} gave {refused!r}"
                )
                where = f"after a refused update of {_shown(arguments)}"
                _same(_generated(engine, asks), alone, asks, where)

    @requires(WorkerCapability.UPDATE_WEIGHTS)
    def test_weights_are_replaced(self, world: WorkerWorld, seed: int) -> None:
        """Requires update_weights, and the kit's tiny model; of another one no weights are known,
        and nothing is tested.
        Does: replaces the lm head, sleeps if it can, and puts the old one back.
        Must: compute with what it was given, also after a sleep at level 1, and with the files' own
        after one at level 2.
        """
        if not world.is_tiny_model:
            return
        asks, alone = world.asks(seed), world.alone(seed)
        with world.launch() as engine:
            head = tiny_weights()[HEAD]
            engine.update_weights(tensors={HEAD: head[::-1].copy()})
            other = _generated(engine, asks)
            assert other != alone, "tokens stay as they were after the lm head was replaced"
            if WorkerCapability.SLEEP in world.subject.capabilities:
                engine.sleep(1)
                engine.wake_up()
                _same(_generated(engine, asks), other, asks, "after a sleep at level 1")
                engine.sleep(2)
                engine.wake_up()
            else:
                engine.update_weights(tensors={HEAD: head})
            _same(_generated(engine, asks), alone, asks, "with the weights as they were")

    @lacking(WorkerCapability.UPDATE_WEIGHTS)
    def test_new_weights_are_refused(self, world: WorkerWorld) -> None:
        """Requires a worker that does not declare update_weights.
        Does: gives an engine new weights.
        Must: let that be refused.
        """
        with world.launch() as engine:
            weights = {NO_WEIGHT: np.zeros(3, np.float32)}
            refused = _error_of(lambda: engine.update_weights(tensors=weights))
            assert isinstance(refused, UnsupportedFeatureError), f"update_weights gave {refused!r}"

    @requires(WorkerCapability.PROFILE)
    def test_a_profile_is_written(self, world: WorkerWorld, seed: int, tmp_path: Path) -> None:
        """Requires profile.
        Does: records some steps, into a directory that is not there yet, twice.
        Must: write a file there each time, name it, and change no token.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        directory = tmp_path / "traces"
        with world.launch() as engine:
            written = []
            for _ in range(2):
                engine.start_profile(str(directory))
                _same(_generated(engine, asks), alone, asks, "while a profile is recorded")
                written += engine.stop_profile()
        files = [path for path in directory.rglob("*") if path.is_file() and path.stat().st_size]
        assert len(set(written)) == 2, f"two recordings of one worker gave the paths {written}"
        lost = {Path(path).resolve() for path in written} - {path.resolve() for path in files}
        assert not lost, f"stop_profile named {sorted(map(str, lost))}, where nothing was written"

    @lacking(WorkerCapability.PROFILE)
    def test_a_profile_is_refused(self, world: WorkerWorld, tmp_path: Path) -> None:
        """Requires a worker that does not declare profile.
        Does: asks an engine to record.
        Must: let that be refused.
        """
        with world.launch() as engine:
            _refused(lambda: engine.start_profile(str(tmp_path)))

    @requires(WorkerCapability.PROMPT_EMBEDS)
    def test_prompt_embeds(self, start: Start, world: WorkerWorld, seed: int) -> None:
        """Requires prompt_embeds.
        Does: gives prompts as embeddings, alone, beside others, in pieces and with preemptions, and
        the opposite ones.
        Must: give the same tokens but for the opposite ones; with the kit's tiny model those of
        the token ids whose embeddings they are.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        size = world.model.info.hidden_size
        assert size > 0, "the model does not tell its hidden size, without which no embedding fits"
        rng = np.random.RandomState(seed)
        table = rng.standard_normal((world.vocab_size, size)).astype(np.float32)
        if world.is_tiny_model:
            table = tiny_weights()[EMBEDDING]
        embedded = [Ask([0] * len(ask.prompt), ask.params) for ask in asks]

        def run(
            bench: WorkerBench, together: bool, preempt_every: int = 0, sign: float = 1
        ) -> list[list[int]]:
            requests = []
            for ask, filler in zip(asks, embedded, strict=True):
                requests.append(bench.add(filler, prompt_embeds=sign * table[ask.prompt]))
                if not together:
                    bench.finish()
            bench.finish(preempt_every=preempt_every)
            return [request.output_token_ids for request in requests]

        first = run(start(), together=False)
        if world.is_tiny_model:
            _same(first, alone, asks, "given as embeddings")
        _same(run(start(), together=True), first, embedded, "as embeddings, beside others")
        other = run(start(), together=True, sign=-1)
        assert other != first, "the opposite embeddings give the same tokens to all requests"
        given = run(start(max_num_batched_tokens=6), together=True, preempt_every=9)
        _same(given, first, embedded, "as embeddings in pieces, after preemptions")

    @lacking(WorkerCapability.PROMPT_EMBEDS)
    def test_prompt_embeds_are_refused(self, world: WorkerWorld) -> None:
        """Requires a worker that does not declare prompt_embeds.
        Does: gives an engine a prompt as embeddings.
        Must: let the request be refused.
        """
        embeds = np.zeros((3, max(1, world.model.info.hidden_size)), np.float32)
        with world.launch() as engine:
            _refused(lambda: engine.generate([{"prompt_embeds": embeds}], greedy(2)))

    @requires(WorkerCapability.LOGITS_PROCESSORS)
    def test_logits_processors(self, start: Start, world: WorkerWorld, seed: int) -> None:
        """Requires logits_processors.
        Does: runs requests with a processor that decides each token by the number of those before,
        beside others without, with preemptions; one whose processor raises.
        Must: tell processors of all tokens, apply them to their own rows, and end the one that
        raises alone.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        bench = start(make_processors=forced(world.subject.config()))
        count = 5

        def params(**options: Any) -> SamplingParams:
            return SamplingParams(max_tokens=count, temperature=0, extensions={FORCED: options})

        forced_ones = [bench.add(Ask(ask.prompt, params())) for ask in asks]
        failing = bench.add(Ask(asks[0].prompt, params(raise_at=2)))
        _same(bench.run(asks, preempt_every=3), alone, asks, "beside others with processors")
        wanted = [FIRST + number for number in range(count)]
        for request in forced_ones:
            assert request.output_token_ids == wanted, (
                f"a processor that decides {wanted} was given {request.output_token_ids}"
            )
        reason = bench.kernel.ended[failing.request_id]
        assert reason is FinishReason.ERROR, f"a processor raised; its request ended with {reason}"
        assert failing.output_token_ids == wanted[:2], (
            f"before its processor raised a request got {failing.output_token_ids}"
        )

    @lacking(WorkerCapability.LOGITS_PROCESSORS)
    def test_logits_processors_are_refused(self, world: WorkerWorld) -> None:
        """Requires a worker that does not declare logits_processors.
        Does: asks an engine for a processor.
        Must: let the request be refused, not answered without it.
        """
        with world.launch(beside=[OffersForcedTokens()]) as engine:
            params = greedy(2, extensions={FORCED: {}})
            _refused(lambda: engine.generate([_prompt(world)], params))

    @requires(WorkerCapability.SLIDING_WINDOW)
    def test_windows_need_no_more(self, world: WorkerWorld, seed: int) -> None:
        """Requires sliding_window, and a model with windows; instead of the kit's tiny model the
        same one with windows. With another model that has none nothing is tested.
        Does: generates while blocks that left a window are given up, and while all are kept.
        Must: give the same tokens, and read nothing that was given up.
        """
        windowed = world.windowed()
        if windowed is None:
            return
        asks = windowed.asks(seed)
        given = []
        for windows in (False, True):
            bench = WorkerBench(windowed, windows=windows, max_num_batched_tokens=6)
            try:
                given.append(bench.run(asks, preempt_every=7))
            finally:
                bench.close()
        _same(given[1], given[0], asks, "when blocks that left the window are given up")

    @requires(WorkerCapability.GRAMMAR)
    def test_grammar(self, start: Start, world: WorkerWorld, seed: int) -> None:
        """Requires grammar.
        Does: allows one token to every other row of a step, by a bitmask.
        Must: give these rows that token, and the others what they get without.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        bench = start()
        requests = [bench.add(ask) for ask in asks]
        bench.kernel.grammar = lambda output: _only(output, FIRST, world.vocab_size)
        bench.kernel.step()
        given = [request.output_token_ids[0] for request in requests]
        wanted = [tokens[0] if n % 2 else FIRST for n, tokens in enumerate(alone)]
        assert given == wanted, f"with a bitmask rows got {given}, not {wanted}"

    @requires(WorkerCapability.ADAPTERS)
    def test_adapters(self, world: WorkerWorld, tmp_path: Path) -> None:
        """Requires adapters.
        Does: lists adapters, forgets one that there is not, and loads an empty directory.
        Must: refuse both with InvalidRequestError, and list the same names as before.
        """
        bench = WorkerBench(world)
        try:
            worker = bench.worker
            before = worker.list_adapters()
            assert all(isinstance(name, str) for name in before), f"list_adapters gave {before}"
            for call in (
                lambda: worker.unload_adapter("conformance"),
                lambda: worker.load_adapter("conformance", str(tmp_path)),
            ):
                refused = _error_of(call)
                assert isinstance(refused, InvalidRequestError), f"it gave {refused!r}"
            after = worker.list_adapters()
            assert after == before, f"after refused calls the adapters are {after}, not {before}"
        finally:
            bench.close()

    @lacking(WorkerCapability.ADAPTERS)
    def test_adapters_are_refused(self, world: WorkerWorld) -> None:
        """Requires a worker that does not declare adapters.
        Does: asks an engine for its adapters.
        Must: let that be refused.
        """
        with world.launch() as engine:
            _refused(lambda: engine.run_command(ListAdapters()))


def _same(
    given: Sequence[list[int]], wanted: Sequence[list[int]], asks: Sequence[Ask], where: str
) -> None:
    for tokens, right, ask in zip(given, wanted, asks, strict=True):
        assert tokens == right, (
            f"{where} a request with a prompt of {len(ask.prompt)} tokens got {tokens}; alone and "
            f"in one piece it gets {right}"
        )


def _generated(engine: Engine, asks: Sequence[Ask]) -> list[list[int]]:
    params = [
        greedy(ask.params.max_tokens or 1, temperature=ask.params.temperature) for ask in asks
    ]
    outputs = engine.generate([ask.prompt for ask in asks], params)
    return [[*output.outputs[0].token_ids] for output in outputs]


def _stream(engine: Engine, ask: Ask) -> Generator[RequestOutput]:
    params = greedy(ask.params.max_tokens or 1)
    return cast("Generator[RequestOutput]", engine.stream(ask.prompt, params))


def _prompt(world: WorkerWorld) -> list[int]:
    return world.asks(0)[0].prompt


def _peculiar(ask: Ask, number: int) -> Ask:
    """With parameters that a worker keeps something for."""
    chosen = [
        SamplingParams(max_tokens=6, temperature=1.0, seed=number),
        SamplingParams(max_tokens=6, temperature=0, allowed_token_ids=[FIRST, FIRST + 1]),
        _impossible(),
    ]
    return Ask(ask.prompt, chosen[number % len(chosen)])


def _impossible() -> SamplingParams:
    """No token is allowed: the only one ends the output, and two others must come before."""
    return SamplingParams(
        max_tokens=4,
        temperature=0,
        allowed_token_ids=[FIRST],
        stop_token_ids=[FIRST],
        min_tokens=2,
    )


def _only(output: SchedulerOutput, token: int, vocab_size: int) -> GrammarOutput:
    """A bitmask that allows one token to every other row."""
    slots = output.slots[::2]
    words = -(-vocab_size // 32)
    bitmask = np.zeros((len(slots), words), np.int32)
    bitmask[:, token // 32] = 1 << (token % 32)
    return GrammarOutput(slots=slots, bitmask=bitmask.reshape(-1))


def _joined(
    pieces: Sequence[LogprobColumns],
) -> tuple[list[int], list[int], list[float], list[int]]:
    return (
        [count for piece in pieces for count in piece.counts.tolist()],
        [token for piece in pieces for token in piece.token_ids.tolist()],
        [logprob for piece in pieces for logprob in piece.logprobs.tolist()],
        [rank for piece in pieces for rank in piece.ranks.tolist()],
    )


def _marked(worker: type[Any]) -> set[str]:
    return {
        name for name in dir(worker) if hasattr(getattr(worker, name, None), "__worker_command__")
    }


def _shown(arguments: dict[str, Any]) -> str:
    return (
        ", ".join(
            f"{key} {value if isinstance(value, str) else sorted(value)}"
            for key, value in arguments.items()
        )
        or "nothing"
    )


def _error_of(call: Callable[[], Any]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None


def _refused(call: Callable[[], Any]) -> None:
    refused = _error_of(call)
    assert isinstance(refused, REFUSALS), (
        f"what the worker does not declare gave {refused!r}; it is refused with "
        "UnsupportedFeatureError or InvalidRequestError"
    )
