"""Processors for these tests, and the plugin that offers them, importable in a child process."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

import msgspec
import torch
from msgspec import Meta

from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.logits import LogitsProcessor, LogitsProcessorContext
from hookspecs.errors import InvalidRequestError
from hookspecs.events import PluginFailed

HEARD: list[tuple[str, str, Any]] = []
"""(tag, method, argument) of each call of an `Echo` in this process."""

FAILED: list[PluginFailed] = []
"""What observers were told in this process."""


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What goes wrong, and when."""

    fault: Literal[
        "constructor",
        "start",
        "mask",
        "accept",
        "exit",
        "refuse constructor",
        "refuse start",
        "no tensor",
        "shape",
        "dtype",
        "nan",
        "+inf",
        "nothing left",
    ]
    at: Annotated[int, Meta(ge=0, description="Output at which mask or accept fails.")] = 0


class Faulty(LogitsProcessor):
    """Does the one thing that its options say, and spoils its row before."""

    def __init__(self, context: LogitsProcessorContext) -> None:
        super().__init__(context)
        options: Options = context.request_options
        self._fault, self._at, self._outputs = options.fault, options.at, 0
        self._raise_if("constructor")

    def start(self, prompt: Sequence[int], generated: Sequence[int]) -> None:
        self._outputs = len(generated)
        self._raise_if("start")

    def mask(self, logits: torch.Tensor) -> torch.Tensor:
        if self._outputs < self._at or self._fault == "accept":
            return logits
        logits[:] = 7.0
        if self._fault == "exit":
            sys.exit("that is all")
        self._raise_if("mask")
        wrong: dict[str, Any] = {
            "no tensor": None,
            "shape": logits[:-1],
            "dtype": logits.double(),
            "nan": torch.full_like(logits, torch.nan),
            "+inf": logits.fill_(torch.inf),
            "nothing left": torch.full_like(logits, -torch.inf),
        }
        masked: torch.Tensor = wrong[self._fault]
        return masked

    def accept(self, token: int) -> None:
        if self._outputs >= self._at:
            self._raise_if("accept")
        self._outputs += 1

    def _raise_if(self, method: str) -> None:
        if self._fault == method:
            raise LookupError(f"out of luck in {method}")
        if self._fault == f"refuse {method}":
            raise InvalidRequestError(f"not for me, says {method}")


class Affine(LogitsProcessor):
    """Logits times a factor, then a bonus for one token; a new tensor, as a careless author may
    return it."""

    class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        factor: float = 1.0
        token: int = 0
        bonus: float = 0.0

    def __init__(self, context: LogitsProcessorContext) -> None:
        super().__init__(context)
        self._options: Affine.Options = context.request_options

    def start(self, prompt: Sequence[int], generated: Sequence[int]) -> None:
        pass

    def mask(self, logits: torch.Tensor) -> torch.Tensor:
        made = logits * self._options.factor
        made[self._options.token] += self._options.bonus
        return made

    def accept(self, token: int) -> None:
        pass


class Echo(LogitsProcessor):
    """Writes down what it hears, and keeps what it heard in a tensor that it changes in place.
    Forbids the token that came last."""

    class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        tag: str

    def __init__(self, context: LogitsProcessorContext) -> None:
        super().__init__(context)
        self._tag: str = context.request_options.tag
        self._counts = torch.zeros(context.vocab_size)
        self._last = -1

    def start(self, prompt: Sequence[int], generated: Sequence[int]) -> None:
        HEARD.append((self._tag, "request", self.context.request_id))
        HEARD.append((self._tag, "start", (list(prompt), list(generated))))
        for token in (*prompt, *generated):
            self._hear(token)

    def mask(self, logits: torch.Tensor) -> torch.Tensor:
        HEARD.append((self._tag, "mask", int(self._counts.sum())))
        logits[self._last] = -torch.inf
        return logits

    def accept(self, token: int) -> None:
        HEARD.append((self._tag, "accept", token))
        self._hear(token)

    def _hear(self, token: int) -> None:
        self._counts[token] += 1
        self._last = token


class Rules(EngineHooks):
    """All of them."""

    PLUGIN = PluginInfo(name="rules", api=">=1.0,<2")

    @hookimpl
    def register_logits_processors(self) -> Iterable[Provider[Any]]:
        module = "tests.logits_processors.rules"
        yield Provider("faulty", f"{module}:Faulty", request_options=Options)
        yield Provider("affine-b", f"{module}:Affine", request_options=Affine.Options)
        yield Provider("affine-a", f"{module}:Affine", request_options=Affine.Options)
        yield Provider("echo", f"{module}:Echo", request_options=Echo.Options)
        yield Provider("missing", "nowhere_at_all:Processor", request_options=Affine.Options)

    @hookimpl
    def on_plugin_failed(self, event: PluginFailed) -> None:
        """Writes it down."""
        FAILED.append(event)


plugin = Rules()
