"""Small real tokenizers, and a front end over a client that replays scripted tokens."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from framework.client.base import EngineCoreClient
from framework.core.info import EngineInfo
from framework.frontend.input_processor import InputProcessor
from framework.frontend.llm import LLM
from framework.frontend.llm_engine import LLMEngine
from framework.frontend.output_processor import OutputProcessor
from framework.frontend.stat_loggers import StatLoggerManager
from framework.frontend.tokenizer import Tokenizer
from framework.plugins.calls import Calls
from framework.plugins.discovery import PluginRef, Source
from framework.plugins.specs import HOOKS
from framework.plugins.validate import HookMethod
from hookspecs.config import EngineConfig
from hookspecs.contracts.model import ModelInfo, ResolvedModel
from hookspecs.contracts.stats import StatLogger, StatLoggerContext
from hookspecs.errors import EngineDeadError
from hookspecs.info import ProcessRole
from hookspecs.types.commands import CommandArguments, ResetPrefixCache
from hookspecs.types.outputs import EngineCoreOutputs, PrefillInfo
from hookspecs.types.request import EngineCoreRequest, FinishReason
from hookspecs.types.sampling import SamplingLimits
from hookspecs.types.stats import FinishedRequestStats, IterationStats, SchedulerStats
from hookspecs.types.step import LogprobColumns

EOS, BOS, PAD = 0, 1, 2
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('system comes first') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
CORPUS = [
    "the quick brown fox jumps over the lazy dog. stop here, stop there!",
    "hello world, hello there: DEFGHIJ and the end of the story",
    "na\u00efve caf\u00e9 \u4f60\u597d \U0001f600 \U0001f468\u200d\U0001f469",
]


def pretrained(backend: Backend) -> Tokenizer:
    from transformers import PreTrainedTokenizerFast

    made = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<eos>", bos_token="<bos>", pad_token="<pad>"
    )
    made.chat_template = TEMPLATE
    return Tokenizer(made)


@pytest.fixture(scope="session")
def byte_level() -> Tokenizer:
    """Byte-level BPE (as GPT-2): every byte has a token; control character U+0007 is dropped."""
    backend = Backend(models.BPE())
    backend.normalizer = normalizers.Replace("\u0007", "")
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=["<eos>", "<bos>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    backend.train_from_iterator(CORPUS, trainer)
    return pretrained(backend)


@pytest.fixture(scope="session")
def byte_fallback() -> Tokenizer:
    """Word pieces with a leading-space mark and byte tokens (as Llama 2)."""
    pieces = ["<eos>", "<bos>", "<pad>", "<unk>"]
    pieces += [f"<0x{byte:02X}>" for byte in range(256)]
    pieces += ["\u2581", "\u2581Hello", "\u2581there", "ing", "\u2581a", "b", "c", ".", "!"]
    backend = Backend(
        models.BPE(
            vocab={piece: index for index, piece in enumerate(pieces)},
            merges=[],
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens(["<eos>", "<bos>", "<pad>"])
    return pretrained(backend)


def byte_ids(tokenizer: Tokenizer, text: str | bytes) -> list[int]:
    """One token a byte."""
    data = text.encode() if isinstance(text, str) else text
    alphabet = _byte_alphabet()
    return [tokenizer.backend.token_to_id(alphabet[byte]) for byte in data]


def _byte_alphabet() -> dict[int, str]:
    """Byte to its printable stand-in of byte-level BPE."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet = {byte: chr(byte) for byte in kept}
    spare = itertools.count(256)
    alphabet.update({byte: chr(next(spare)) for byte in range(256) if byte not in alphabet})
    return alphabet


@dataclass
class Running:
    """A request in the scripted engine core."""

    request: EngineCoreRequest
    script: list[int]
    position: int = 0


Script = Callable[[EngineCoreRequest], list[int]]


class ScriptedClient(EngineCoreClient):
    """Emits scripted tokens, `chunk` a step and request; stops as an engine core does."""

    def __init__(self, info: EngineInfo) -> None:
        self._info = info
        self.script: Script = lambda request: [10, 11, 12]
        self.chunk: Callable[[], int] = lambda: 1
        self.requests: list[EngineCoreRequest] = []
        self.running: dict[int, Running] = {}
        self.aborted: list[int] = []
        self.reasons: list[str] = []
        """Why, for each of `aborted`."""
        self.fail_abort = False
        self.errors: dict[int, str] = {}
        """Handle to the error that its request ends with at the next step."""
        self.refused: dict[int, str] = {}
        """Handle to why its request is not taken, at the next step."""
        self.lost: list[int] = []
        """Handles told as finished, without a row, at the next step."""
        self.fail_add_at: int | None = None
        self.dead = False
        self.interrupt = False
        self.now = 1000.0
        self.closed = 0

    @property
    def info(self) -> EngineInfo:
        return self._info

    def add_request(self, request: EngineCoreRequest) -> None:
        if self.fail_add_at == len(self.requests):
            raise EngineDeadError("the engine core has stopped")
        # What a transport would do to it.
        request = msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=EngineCoreRequest)
        self.requests.append(request)
        self.running[request.handle] = Running(request, self.script(request))

    def abort_requests(
        self, handles: Sequence[int], reason: FinishReason = FinishReason.ABORT
    ) -> None:
        if self.dead or self.fail_abort:
            raise EngineDeadError("the engine core has stopped")
        self.aborted += handles
        self.reasons += [str(reason)] * len(handles)
        for handle in handles:
            self.running.pop(handle, None)

    def has_unfinished(self) -> bool:
        return bool(self.running)

    def command(self, arguments: CommandArguments) -> bool:
        assert isinstance(arguments, ResetPrefixCache)
        return not self.running

    def shutdown(self) -> None:
        self.closed += 1

    def get_outputs(self) -> EngineCoreOutputs:
        if self.dead:
            raise EngineDeadError("the engine core has stopped")
        if self.interrupt:
            raise KeyboardInterrupt
        self.now += 1.0
        rows = Rows()
        for handle, running in list(self.running.items()):
            self._step(handle, running, rows)
        outputs = rows.build(self.now)
        for handle in self.lost:
            self.running.pop(handle, None)
        outputs.finished_handles = np.array(self.lost, np.int64)
        self.lost = []
        return outputs

    def _step(self, handle: int, running: Running, rows: Rows) -> None:
        params = running.request.sampling_params
        row = len(rows.handles)
        if handle in self.refused:
            rows.refused.append(row)
            self.errors[handle] = self.refused.pop(handle)
        if handle in self.errors:
            rows.add(handle, [], FinishReason.ERROR)
            rows.errors[row] = self.errors.pop(handle)
            del self.running[handle]
            return
        if running.position == 0:
            rows.prefills[row] = PrefillInfo(
                num_prompt_tokens=len(running.request.prompt_token_ids),
                num_cached_tokens=2,
                queued_at=self.now - 0.75,
                scheduled_at=self.now - 0.5,
            )
            if params.prompt_logprobs is not None:
                rows.prompt_logprobs[row] = prompt_pieces(running.request)
        taken: list[int] = []
        code = None
        for _ in range(self.chunk()):
            token = running.script[running.position]
            running.position += 1
            taken.append(token)
            if token == running.request.eos_token_id:
                code = FinishReason.STOP
            elif token in (params.stop_token_ids or ()):
                code = FinishReason.STOP
                rows.stop_reasons[row] = token
            elif running.position in (params.max_tokens, len(running.script)):
                code = FinishReason.LENGTH
            if params.logprobs is not None:
                rows.add_logprobs(row, token, params.logprobs)
            if code is not None:
                del self.running[handle]
                break
        rows.add(handle, taken, code)


@dataclass
class Rows:
    """Rows of one bundle, gathered."""

    handles: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    stop_reasons: dict[int, int] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    refused: list[int] = field(default_factory=list)
    prefills: dict[int, PrefillInfo] = field(default_factory=dict)
    prompt_logprobs: dict[int, list[LogprobColumns]] = field(default_factory=dict)
    logprobs: list[list[tuple[int, float, int]]] = field(default_factory=list)
    logprob_rows: list[int] = field(default_factory=list)

    def add(self, handle: int, tokens: list[int], code: FinishReason | None) -> None:
        self.handles.append(handle)
        self.counts.append(len(tokens))
        self.tokens += tokens
        self.codes.append(-1 if code is None else int(code))

    def add_logprobs(self, row: int, token: int, alternatives: int) -> None:
        top = [(index + 5, -1.0 - index, index + 1) for index in range(alternatives)]
        rank = token - 4 if 5 <= token < 5 + alternatives else 99
        self.logprobs.append([(token, -0.5, rank), *top])
        self.logprob_rows.append(row)

    def build(self, now: float) -> EngineCoreOutputs:
        return EngineCoreOutputs(
            handles=np.array(self.handles, np.int64),
            num_tokens=np.array(self.counts, np.int32),
            token_ids=np.array(self.tokens, np.int32),
            finish_codes=np.array(self.codes, np.int8),
            timestamp=now,
            stop_reasons=self.stop_reasons,
            errors=self.errors,
            refused=self.refused,
            prefills=self.prefills,
            prompt_logprobs=self.prompt_logprobs,
            logprobs=columns(self.logprobs) if self.logprobs else None,
            logprob_rows=np.array(self.logprob_rows, np.int32) if self.logprobs else None,
            scheduler_stats=SchedulerStats(),
        )


def columns(positions: list[list[tuple[int, float, int]]]) -> LogprobColumns:
    entries = [entry for position in positions for entry in position]
    return LogprobColumns(
        counts=np.array([len(position) for position in positions], np.int32),
        token_ids=np.array([entry[0] for entry in entries], np.int32),
        logprobs=np.array([entry[1] for entry in entries], np.float32),
        ranks=np.array([entry[2] for entry in entries], np.int32),
    )


def prompt_pieces(request: EngineCoreRequest) -> list[LogprobColumns]:
    """Two pieces, as of a prompt that was computed in two chunks."""
    positions: list[list[tuple[int, float, int]]] = [
        [(token, -0.25, 1)] for token in request.prompt_token_ids
    ]
    positions[0] = []
    return [columns(positions[:2]), columns(positions[2:])]


class Recorder(StatLogger):
    """Keeps what it is told; raises when told to."""

    def __init__(self) -> None:
        super().__init__(StatLoggerContext(config=EngineConfig(), plugin="recorder"))
        self.iterations: list[IterationStats] = []
        self.reports = 0
        self.closed = 0
        self.broken = False

    def record(
        self,
        scheduler: SchedulerStats | None,
        iteration: IterationStats | None,
        engine_index: int = 0,
    ) -> None:
        if self.broken:
            raise OSError("disk full")
        if iteration is not None:
            self.iterations.append(iteration)

    def report(self) -> None:
        self.reports += 1

    def close(self) -> None:
        self.closed += 1

    @property
    def finished(self) -> list[FinishedRequestStats]:
        return [stats for iteration in self.iterations for stats in iteration.finished]


@dataclass
class Rig:
    """A whole front end over a scripted client."""

    tokenizer: Tokenizer
    client: ScriptedClient
    inputs: InputProcessor
    outputs: OutputProcessor
    recorder: Recorder
    stats: StatLoggerManager
    engine: LLMEngine
    llm: LLM

    def says(self, *scripts: list[int], chunks: Sequence[int] = (1,)) -> None:
        """The n-th request gets the n-th script (the last one if there are fewer)."""
        count = itertools.count()
        self.client.script = lambda request: list(scripts[min(next(count), len(scripts) - 1)])
        sizes = itertools.cycle(chunks)
        self.client.chunk = lambda: next(sizes)

    def assert_idle(self) -> None:
        """Nothing is left of any request."""
        assert self.engine.num_requests == 0
        assert not self.client.running
        assert not self.engine.has_unfinished_requests()
        handles = [request.request_id for request in self.client.requests]
        ended = [stats.request_id for stats in self.recorder.finished]
        assert sorted(ended) == sorted(handles)


def make_rig(
    tokenizer: Tokenizer | None,
    *,
    filters: dict[str, Callable[..., Any]] | None = None,
    vocab_size: int = 420,
    max_model_len: int = 128,
    cache_tokens: int = 4096,
    eos: tuple[int, ...] = (EOS,),
    request_options: dict[str, type[msgspec.Struct]] | None = None,
    limits: SamplingLimits | None = None,
    **info: Any,
) -> Rig:
    now = itertools.count(500)

    def clock() -> float:
        return float(next(now))

    ref = PluginRef(name="test", value="", source=Source.LOCAL)
    calls = Calls(
        [
            HookMethod(spec=HOOKS[name], ref=ref, attribute=name, function=function)
            for name, function in (filters or {}).items()
        ],
        role=ProcessRole.FRONTEND,
    )
    model = ResolvedModel(
        name="tiny",
        path=None,
        tokenizer_path=None,
        info=ModelInfo(
            architecture="Tiny",
            vocab_size=vocab_size,
            max_model_len=max_model_len,
            eos_token_ids=eos,
            hidden_size=4,
            **info,
        ),
    )
    client = ScriptedClient(
        EngineInfo(
            max_model_len=max_model_len,
            cache_tokens=cache_tokens,
            num_blocks=cache_tokens // 16,
            block_size=16,
            worker="scripted",
            capabilities=frozenset({"prompt_logprobs", "prompt_embeds"}),
        )
    )
    inputs = InputProcessor(
        EngineConfig(),
        model,
        tokenizer,
        client.info,
        calls=calls,
        request_options=request_options,
        limits=limits,
        clock=clock,
    )
    outputs = OutputProcessor(tokenizer, calls=calls, clock=clock)
    recorder = Recorder()
    stats = StatLoggerManager({"recorder": recorder}, calls=calls, interval_s=1e9, clock=clock)
    engine = LLMEngine(client, inputs, outputs, stats)
    return Rig(
        tokenizer=tokenizer,  # type: ignore[arg-type]
        client=client,
        inputs=inputs,
        outputs=outputs,
        recorder=recorder,
        stats=stats,
        engine=engine,
        llm=LLM(engine),
    )


@pytest.fixture(scope="session")
def make(byte_level: Tokenizer) -> Callable[..., Rig]:
    """Makes rigs with the byte-level tokenizer."""

    def build(**options: Any) -> Rig:
        return make_rig(byte_level, **options)

    return build


@pytest.fixture
def rig(make: Callable[..., Rig]) -> Iterator[Rig]:
    """A rig that must be idle when the test is over."""
    made = make()
    yield made
    made.assert_idle()


@pytest.fixture
def no_tokenizer() -> Rig:
    """A rig for a model without tokenizer."""
    return make_rig(None, has_tokenizer=False)


@pytest.fixture(scope="session")
def bytes_of(byte_level: Tokenizer) -> Callable[[str | bytes], list[int]]:
    """Text to one token a byte, of the byte-level tokenizer."""
    return lambda text: byte_ids(byte_level, text)
