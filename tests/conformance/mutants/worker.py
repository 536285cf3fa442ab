"""Broken workers. All but those of `cpu` derive from `scripted`, whose tokens are a function of all
tokens before."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import msgspec
import numpy as np

from builtin_plugins.worker_cpu.worker import CpuWorker
from builtin_plugins.worker_scripted.options import CAPABILITIES, ScriptedOptions
from builtin_plugins.worker_scripted.worker import ScriptedWorker
from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.worker import Worker, WorkerCapability, WorkerContext, command
from hookspecs.errors import InvalidRequestError
from hookspecs.events import ConfigResolved
from hookspecs.types.kv import KVCacheConfig
from hookspecs.types.step import GrammarOutput, ModelRunnerOutput, NewRequest, SchedulerOutput
from tests.conformance.mutants.mutant import Mutant, providing

__all__ = ["MUTANTS"]

VOCAB_SIZE = 1000


class Spoiled(ScriptedWorker):
    """Knows what is in its slots, and may shift the tokens of a step."""

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        self.requests: dict[int, NewRequest] = {}
        self.scheduled: SchedulerOutput | None = None

    def execute_model(self, scheduled: SchedulerOutput) -> None:
        for slot in scheduled.released_slots:
            self.forget(slot)
        for new in scheduled.new_requests:
            self.remember(new)
        self.scheduled = scheduled
        super().execute_model(scheduled)

    def sample_tokens(self, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        output = super().sample_tokens(grammar)
        assert self.scheduled is not None
        slots = self.scheduled.slots[output.num_sampled > 0].tolist()
        shifts = [self.shift(slot) for slot in slots]
        moved = output.token_ids + np.array(shifts, dtype=np.int32)
        output.token_ids = (moved % VOCAB_SIZE).astype(np.int32)
        return output

    def forget(self, slot: int) -> None:
        """A slot became free."""
        self.requests.pop(slot, None)

    def remember(self, new: NewRequest) -> None:
        """A request starts."""
        self.requests[new.slot] = new

    def shift(self, slot: int) -> int:
        """By how much its token is wrong."""
        return 0


# Life


class RatesInHalves(ScriptedWorker):
    @classmethod
    def rate(cls) -> int:
        return 0.5  # type: ignore[return-value]


class NamesNoType(CpuWorker):
    """Takes the loader that is best for the type of the checkpoint."""

    def __init__(self, context: WorkerContext) -> None:
        create = context.create_loader
        super().__init__(msgspec.structs.replace(context, create_loader=lambda **_: create()))


class NamesAnotherDevice(CpuWorker):
    def __init__(self, context: WorkerContext) -> None:
        create = context.create_loader
        changed = msgspec.structs.replace(
            context, create_loader=lambda *, dtype, device: create(dtype=dtype, device="cuda")
        )
        super().__init__(changed)


class CountsItsLives(Spoiled):
    """What the class keeps, the next worker gets."""

    lives: ClassVar[list[str]] = []

    def load_model(self) -> None:
        super().load_model()
        self.lives.append("another")

    def shift(self, slot: int) -> int:
        return len(self.lives)


class EndsOnlyWhatBegan(ScriptedWorker):
    loaded = False

    def load_model(self) -> None:
        super().load_model()
        self.loaded = True

    def shutdown(self) -> None:
        if not self.loaded:
            raise RuntimeError("there is no model to give back")
        super().shutdown()


class LeavesAThread(ScriptedWorker):
    def init_device(self) -> None:
        threading.Thread(target=threading.Event().wait, args=(10,), daemon=True).start()


class TakesWhatItLikes(ScriptedWorker):
    def available_kv_bytes(self) -> int:
        return 1 << 26


class CountsInHalves(ScriptedWorker):
    @property
    def prefill_beside_decode(self) -> int | None:
        return 32.5  # type: ignore[return-value]


class LeavesNoRoom(ScriptedWorker):
    @property
    def prefill_beside_decode(self) -> int | None:
        return 0


class KnowsTooLate(ScriptedWorker):
    """Not before it has a cache."""

    def initialize_kv_cache(self, kv_config: KVCacheConfig) -> None:
        super().initialize_kv_cache(kv_config)
        self.most = 2 * kv_config.block_size

    @property
    def prefill_beside_decode(self) -> int | None:
        return self.most


class OffersEverything(ScriptedWorker):
    def commands(self) -> dict[str, Callable[..., Any]]:
        return super().commands() | {"load_model": self.load_model}


# Tokens


class SamplesParts(ScriptedWorker):
    """Gives a token to rows that have not reached their last one."""

    def sample_tokens(self, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        output = super().sample_tokens(grammar)
        output.num_sampled = np.ones_like(output.num_sampled)
        output.token_ids = np.resize(output.token_ids, len(output.num_sampled)).astype(np.int32)
        return output


class AnswersInLongs(ScriptedWorker):
    def sample_tokens(self, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        output = super().sample_tokens(grammar)
        wide: Any = output.token_ids.astype(np.int64)
        output.token_ids = wide
        return output


class SwapsRows(ScriptedWorker):
    """Reorders outputs."""

    def sample_tokens(self, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        output = super().sample_tokens(grammar)
        output.token_ids = output.token_ids[::-1].copy()
        return output


class MindsItsNeighbours(Spoiled):
    def shift(self, slot: int) -> int:
        return len(self.requests) - 1


class MindsItsSlot(Spoiled):
    def shift(self, slot: int) -> int:
        return slot


class MindsItsPieces(Spoiled):
    """The last piece of a prompt counts as all of it."""

    def shift(self, slot: int) -> int:
        assert self.scheduled is not None
        [row] = [row for row in self.scheduled.rows() if row.slot == slot]
        new = self.requests[slot]
        whole = row.num_computed_tokens + row.num_scheduled_tokens
        first = whole == new.num_prompt_tokens
        return int(first and row.num_computed_tokens > new.num_computed_tokens)


class StartsFromNothing(Spoiled):
    """Forgets num_computed_tokens: it computes as if nothing had been in the cache."""

    def shift(self, slot: int) -> int:
        return self.requests[slot].num_computed_tokens


class ForgetsWhatItSaid(Spoiled):
    """Stale state after preemption: one that resumes goes on from its prompt."""

    def shift(self, slot: int) -> int:
        new = self.requests[slot]
        return int(len(new.token_ids) > new.num_prompt_tokens)


class KeepsParameters(Spoiled):
    """What a request asked for stays in its slot."""

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        self.peculiar: set[int] = set()

    def remember(self, new: NewRequest) -> None:
        if new.sampling_params.allowed_token_ids is not None:
            self.peculiar.add(new.slot)
        super().remember(new)

    def shift(self, slot: int) -> int:
        return int(slot in self.peculiar)


class DrawsAnew(Spoiled):
    """Non-deterministic under a seed."""

    def shift(self, slot: int) -> int:
        params = self.requests[slot].sampling_params
        return 0 if params.seed is None else random.randrange(VOCAB_SIZE)


class RaisesForOne(Spoiled):
    """An error of one request is one of the whole step."""

    def sample_tokens(self, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        output = super().sample_tokens(grammar)
        if output.failures:
            raise RuntimeError("a row has no token")
        return output


class TakesWhatIsForbidden(ScriptedWorker):
    """Goes on with another token where none is allowed."""

    def execute_model(self, scheduled: SchedulerOutput) -> None:
        for new in scheduled.new_requests:
            params = new.sampling_params
            if params.min_tokens:
                new.sampling_params = msgspec.structs.replace(params, min_tokens=0)
        super().execute_model(scheduled)


class TiresInTime(Spoiled):
    """Right in the first forty steps."""

    steps = 0

    def execute_model(self, scheduled: SchedulerOutput) -> None:
        self.steps += 1
        super().execute_model(scheduled)

    def shift(self, slot: int) -> int:
        return int(self.steps > 40)


# Capabilities that it declares


class LogprobsOfThePiece(ScriptedWorker):
    """Begins each piece of a prompt with a position without entries."""

    def sample_tokens(self, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        output = super().sample_tokens(grammar)
        for piece in output.prompt_logprobs.values():
            if len(piece.counts) and piece.counts[0]:
                piece.counts = np.concatenate((np.zeros(1, np.int32), piece.counts))
        return output


class PoolsTheLastPiece(ScriptedWorker):
    """Its mean is that of the tokens of the last step."""

    def sample_tokens(self, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        output = super().sample_tokens(grammar)
        output.pooled = {
            slot: (vector * np.float32(1 + (self._partly(slot)))).astype(np.float32)
            for slot, vector in output.pooled.items()
        }
        return output

    scheduled: SchedulerOutput | None = None

    def execute_model(self, scheduled: SchedulerOutput) -> None:
        self.scheduled = scheduled
        super().execute_model(scheduled)

    def _partly(self, slot: int) -> int:
        assert self.scheduled is not None
        return sum(row.num_computed_tokens for row in self.scheduled.rows() if row.slot == slot)


class WakesAsAnother(Spoiled):
    """Its weights come back wrong after a sleep at level 2."""

    level = 0

    @command
    def sleep(self, level: int) -> None:
        self.level = max(level, self.level)
        super().sleep(level)

    def shift(self, slot: int) -> int:
        return int(self.level == 2)


class ReplacesBeforeItLooks(Spoiled):
    spoiled = 0

    @command
    def update_weights(self, path: str | None, tensors: Mapping[str, Any] | None) -> int:
        self.spoiled = 1
        return super().update_weights(path, tensors)

    def shift(self, slot: int) -> int:
        return self.spoiled


class ReplacesNothing(CpuWorker):
    @command
    def update_weights(self, path: str | None, tensors: Mapping[str, Any] | None) -> int:
        return len(tensors or ())


class WritesNoProfile(ScriptedWorker):
    capabilities: ClassVar[frozenset[WorkerCapability]] = CAPABILITIES | {WorkerCapability.PROFILE}

    @command
    def start_profile(self, directory: str) -> None:
        self.directory = directory

    @command
    def stop_profile(self) -> str:
        return f"{self.directory}/trace.json"


class TakesFillersForTokens(ScriptedWorker):
    """Ignores embeddings, which it declares."""

    capabilities: ClassVar[frozenset[WorkerCapability]] = CAPABILITIES | {
        WorkerCapability.PROMPT_EMBEDS
    }


class AppliesNoProcessors(ScriptedWorker):
    """Does not ask for processors, though it declares them."""

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(
            msgspec.structs.replace(context, create_logits_processors=lambda request, size: ())
        )


class LooksBeyondItsWindow(ScriptedWorker):
    """Attends to all tokens, though its layers have windows."""

    def initialize_kv_cache(self, kv_config: KVCacheConfig) -> None:
        groups = tuple(
            msgspec.structs.replace(group, sliding_window=None) for group in kv_config.groups
        )
        super().initialize_kv_cache(msgspec.structs.replace(kv_config, groups=groups))


class HearsNoGrammar(ScriptedWorker):
    capabilities: ClassVar[frozenset[WorkerCapability]] = CAPABILITIES | {WorkerCapability.GRAMMAR}

    def sample_tokens(self, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        return super().sample_tokens(None)


class TakesAnyAdapter(ScriptedWorker):
    capabilities: ClassVar[frozenset[WorkerCapability]] = CAPABILITIES | {WorkerCapability.ADAPTERS}

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        self.adapters: list[str] = []

    @command
    def list_adapters(self) -> list[str]:
        return [*self.adapters]

    @command
    def load_adapter(self, name: str, path: str) -> None:
        self.adapters.append(name)

    @command
    def unload_adapter(self, name: str) -> None:
        raise InvalidRequestError(f"there is no adapter {name!r}")


# Capabilities that it does not declare


class CanDoNothing(ScriptedWorker):
    capabilities: ClassVar[frozenset[WorkerCapability]] = frozenset()


class CanDoAll(WritesNoProfile):
    capabilities: ClassVar[frozenset[WorkerCapability]] = CAPABILITIES | {
        WorkerCapability.PROFILE,
        WorkerCapability.PROMPT_EMBEDS,
        WorkerCapability.ADAPTERS,
    }

    @command
    def list_adapters(self) -> list[str]:
        return []


class _HandsOver(EngineHooks):
    """Its worker declares nothing, but its engines run with another one, which does what was asked
    for: nobody hears that the selected one can not."""

    PLUGIN = PluginInfo(name="mutant", api=">=1.0,<2")

    @hookimpl
    def register_workers(self) -> Iterable[Provider[Worker]]:
        for name, part in (("mutant", CanDoNothing), ("able", CanDoAll)):
            yield Provider(
                name,
                f"{__name__}:{part.__name__}",
                options=ScriptedOptions,
                capabilities=frozenset(part.capabilities),
            )

    @hookimpl
    def adjust_config(self, event: ConfigResolved) -> ConfigResolved | None:
        if event.config.executor.worker != "mutant":
            return None
        executor = msgspec.structs.replace(event.config.executor, worker="able")
        return ConfigResolved(config=msgspec.structs.replace(event.config, executor=executor))


def _mutant(fault: str, part: type[ScriptedWorker], *caught_by: str, **options: Any) -> Mutant:
    """`options` of the worker."""
    plugin = providing("worker", part, options=ScriptedOptions)
    return Mutant("worker", fault, plugin, caught_by, {"plugins": {"options": {"mutant": options}}})


MUTANTS = [
    _mutant("rates in halves", RatesInHalves, "test_its_rate_is_cheap"),
    Mutant(
        "worker",
        "names no type to the loader",
        providing("worker", NamesNoType),
        ("test_it_asks_for_the_loader_that_it_needs",),
    ),
    Mutant(
        "worker",
        "names another device to the loader",
        providing("worker", NamesAnotherDevice),
        ("test_it_asks_for_the_loader_that_it_needs",),
    ),
    _mutant("another one each time", CountsItsLives, "test_it_lives_twice"),
    _mutant("ends only what began", EndsOnlyWhatBegan, "test_shutdown_at_any_time"),
    _mutant("leaves a thread", LeavesAThread, "test_nothing_is_left"),
    _mutant("takes what memory it likes", TakesWhatItLikes, "test_cache_bytes_are_as_configured"),
    _mutant(
        "counts prompt tokens in halves",
        CountsInHalves,
        "test_it_knows_how_much_fits_beside_decodes",
    ),
    _mutant("leaves prompts no room", LeavesNoRoom, "test_it_knows_how_much_fits_beside_decodes"),
    _mutant("knows its room too late", KnowsTooLate, "test_it_knows_how_much_fits_beside_decodes"),
    _mutant("offers all methods", OffersEverything, "test_commands_are_marked"),
    _mutant("samples for partial prefill", SamplesParts, "test_each_row_gets_what_it_is_due"),
    _mutant("answers in longs", AnswersInLongs, "test_each_row_gets_what_it_is_due"),
    _mutant("swaps rows", SwapsRows, "test_neighbours_do_not_matter"),
    _mutant(
        "minds its neighbours",
        MindsItsNeighbours,
        "test_neighbours_do_not_matter",
        "test_tokens_in_an_engine",
    ),
    _mutant("minds its slot", MindsItsSlot, "test_slots_do_not_matter"),
    _mutant("minds its pieces", MindsItsPieces, "test_pieces_do_not_matter"),
    _mutant("starts from nothing", StartsFromNothing, "test_cached_prefixes_do_not_matter"),
    _mutant("stale state after preemption", ForgetsWhatItSaid, "test_preempted_requests_go_on"),
    _mutant("keeps parameters in a slot", KeepsParameters, "test_released_slots_are_forgotten"),
    _mutant("non-deterministic under a seed", DrawsAnew, "test_seeded_draws_repeat"),
    _mutant("raises for one request", RaisesForOne, "test_a_failing_request_ends_alone"),
    _mutant("takes what is forbidden", TakesWhatIsForbidden, "test_a_failing_request_ends_alone"),
    _mutant("tires in time", TiresInTime, "test_random_workloads"),
    _mutant("gaps in prompt logprobs", LogprobsOfThePiece, "test_prompt_logprobs"),
    _mutant("pools the last piece", PoolsTheLastPiece, "test_pooling"),
    _mutant("wakes as another", WakesAsAnother, "test_sleep"),
    _mutant("replaces before it looks", ReplacesBeforeItLooks, "test_wrong_weights_change_nothing"),
    Mutant(
        "worker",
        "replaces nothing",
        providing("worker", ReplacesNothing),
        ("test_weights_are_replaced",),
    ),
    _mutant("writes no profile", WritesNoProfile, "test_a_profile_is_written"),
    _mutant("ignores embeddings", TakesFillersForTokens, "test_prompt_embeds"),
    _mutant("ignores processors", AppliesNoProcessors, "test_logits_processors"),
    _mutant(
        "ignores its window", LooksBeyondItsWindow, "test_windows_need_no_more", sliding_window=6
    ),
    _mutant("ignores grammars", HearsNoGrammar, "test_grammar"),
    _mutant("takes any adapter", TakesAnyAdapter, "test_adapters"),
    Mutant(
        "worker",
        "falls back on another worker",
        _HandsOver(),
        (
            "test_prompt_logprobs_are_refused",
            "test_pooling_is_refused",
            "test_sleep_is_refused",
            "test_new_weights_are_refused",
            "test_a_profile_is_refused",
            "test_prompt_embeds_are_refused",
            "test_logits_processors_are_refused",
            "test_adapters_are_refused",
        ),
    ),
]
