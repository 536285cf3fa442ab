"""Front ends, HTTP routes and CLI commands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from hookspecs.contracts.base import Context
from hookspecs.contracts.stats import Exposition
from hookspecs.types.control import EngineHealth
from hookspecs.types.outputs import RequestOutput
from hookspecs.types.pooling import PoolingOutput, PoolingParams
from hookspecs.types.sampling import SamplingLimits, SamplingParams

__all__ = [
    "CliCommand",
    "CliContext",
    "EngineClient",
    "Frontend",
    "FrontendContext",
    "HttpRoutes",
    "HttpRoutesContext",
    "ServiceInfo",
]


class ServiceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of what is served, fixed from the start."""

    model: str
    """As configured."""
    max_model_len: int
    """Prompt and output tokens of one request: the effective limit."""
    vocab_size: int
    hidden_size: int = 0
    """Elements of an embedding; 0 when the model does not say."""
    version: str
    """Of the distribution."""
    api_version: str
    """Of the plugin contract."""
    started_at: int
    """Seconds since 1970, UTC."""
    capabilities: frozenset[str] = frozenset()
    """WorkerCapability values of the worker."""
    has_tokenizer: bool = True
    has_chat_template: bool = True
    limits: SamplingLimits = SamplingLimits()


class EngineClient(Protocol):
    """What the kernel lends to front ends and routes. Front-end process, its event loop.

    Every method that reaches an engine raises EngineDeadError once that has stopped.
    """

    @property
    def info(self) -> ServiceInfo:
        """Facts of what is served."""

    def check_admission(self, count: int = 1) -> None:
        """EngineUnavailableError, of which QueueFullError, when `count` more requests would not be
        taken right now: to be asked before work that comes before `generate`. Reserves nothing."""

    def generate(
        self,
        prompt: Any,
        params: SamplingParams | None = None,
        *,
        request_id: str,
        priority: int = 0,
        tenant: str = "",
        deadline: float | None = None,
        cache_salt: str = "",
        labels: dict[str, str] | None = None,
        trace_headers: dict[str, str] | None = None,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Outputs of one request until it has finished; closing the iterator aborts it.

        `prompt`: a string, a list of token ids, or a mapping of `prompt_token_ids`, `prompt`,
        `prompt_embeds`, `cache_salt`. `params.output_kind` says what each output holds. A
        consumer that is slow gets several steps in one output, never a longer queue.
        `deadline`: latest time to start, seconds of the monotonic clock. An output with
        finish reason `error` or `timeout` says why in its `error`.

        Raised at the first `anext`: InvalidRequestError; EngineUnavailableError, of which
        QueueFullError, when no new requests are taken; RequestFailedError.
        """

    async def embed(
        self,
        prompt: Any,
        params: PoolingParams | None = None,
        *,
        request_id: str,
        priority: int = 0,
        tenant: str = "",
        cache_salt: str = "",
        labels: dict[str, str] | None = None,
        trace_headers: dict[str, str] | None = None,
    ) -> PoolingOutput:
        """The vector of one prompt. Cancelling aborts it. Raises as `generate`, and
        UnsupportedFeatureError when the worker does not pool."""

    async def abort(self, request_id: str) -> None:
        """End a request with finish reason `abort`; unknown ids are ignored."""

    def default_params(self) -> SamplingParams:
        """The sampling parameters that the model's authors recommend; a copy."""

    async def chat_prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] = (),
        template_arguments: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The prompt of a conversation: `prompt` (text) and `prompt_token_ids`.
        InvalidRequestError when messages or template do not fit."""

    async def tokenize(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text."""

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        """The text of token ids, special tokens included. InvalidRequestError for ids outside
        of the vocabulary."""

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for, which may be part of a character."""

    async def command(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Run a control command on all engines: one of `hookspecs.types.commands`, or one that a
        plugin provides (`EngineCommand`). The result in plain values; of several engines one
        truth value where it is one, else the list of their results in the order of their indexes.
        InvalidRequestError for an unknown name or wrong arguments, CommandError when it can not
        be done now, or a plugin's raised."""

    def health(self) -> EngineHealth:
        """What is known of the engines right now; never waits."""

    def plugins(self) -> list[dict[str, Any]]:
        """State, providers, calls and errors of every plugin, in plain values."""

    def expositions(self) -> list[Exposition]:
        """The metrics of every stat logger that has a text form for collectors."""


class FrontendContext(Context, frozen=True, kw_only=True):
    """Context of a front end."""

    engine: EngineClient
    listen_fd: int
    """A TCP socket that is bound and listens; shared by all front-end processes."""
    routes: Mapping[str, Any] = {}
    """Plugin name to the ASGI application to mount under `/plugins/<name>/`."""
    process_index: int = 0
    """This front-end process, below `serving.processes`."""


class Frontend(ABC):
    """Takes requests from users. Front-end process, its event loop."""

    def __init__(self, context: FrontendContext) -> None:
        self.context = context

    @abstractmethod
    async def serve(self) -> None:
        """Take requests until cancelled. After that open connections are closed promptly: the
        kernel has let requests end, or aborted them, before it cancels."""


class HttpRoutesContext(Context, frozen=True, kw_only=True):
    """Context of HTTP routes."""

    engine: EngineClient


class HttpRoutes(ABC):
    """Routes under the front end's own server, behind its authentication and limits."""

    def __init__(self, context: HttpRoutesContext) -> None:
        self.context = context

    @abstractmethod
    def asgi(self) -> Any:
        """An ASGI application (ASGI 3), mounted at `/plugins/<name of the plugin>/`. It
        answers every request once, or lets an error out before it begins to. A request that is
        cancelled ends at once, and with it what it began in the engine."""


class CliContext(Context, frozen=True, kw_only=True):
    """Context of a CLI command."""


class CliCommand(ABC):
    """`framework NAME …`; the provider's name is the command. A built-in one of the same name,
    which a later version may add, is run in its place, with a warning in the help."""

    def __init__(self, context: CliContext) -> None:
        self.context = context

    @abstractmethod
    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare its arguments, the same to each parser. Options of the forms `--config` and
        `--section.key` are settings of the kernel, and do not reach it."""

    @abstractmethod
    def run(self, arguments: Namespace, rest: Sequence[str] = ()) -> int:
        """Do it; returns the exit code, 0 to 255. An error of `hookspecs.errors` that it raises
        becomes a message and an exit code. `rest`: what stood behind a bare `--`."""
