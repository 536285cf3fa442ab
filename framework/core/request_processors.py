"""The logits processors that a request asks for. Called where its worker runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Final, NamedTuple

import msgspec

from framework.plugins.counters import Counter
from framework.plugins.failure import describe
from framework.plugins.manager import PluginManager
from framework.plugins.registry import RegisteredProvider
from hookspecs.contracts.logits import LogitsProcessor
from hookspecs.errors import InvalidRequestError, PluginError, RequestError, RequestFailedError
from hookspecs.types.step import NewRequest

__all__ = ["RequestProcessors"]

_KIND: Final = "logits_processor"

logger = logging.getLogger("framework.core")


class _Offered(NamedTuple):
    found: RegisteredProvider
    make: Callable[..., Any] | None
    broken: str
    """Why it can not be made for any request; then `make` is None."""
    counter: Counter

    @property
    def what(self) -> str:
        return f"logits processor {self.found.provider.name!r} of plugin {self.found.ref.name!r}"


class RequestProcessors:
    """Makes them, as `WorkerContext.create_logits_processors`: in the middle of a step, so what
    is the same for all requests is done for the first that asks for a provider."""

    def __init__(self, plugins: PluginManager) -> None:
        self._plugins = plugins
        self._offered: dict[str, _Offered] = {}
        self._logged: set[str] = set()

    def __call__(self, request: NewRequest, vocab_size: int) -> Sequence[LogitsProcessor]:
        """Those that `sampling_params.extensions` names, in the order of their names; names that
        are of other kinds' providers are not this function's.

        InvalidRequestError where one refuses the request. RequestFailedError, with the plugin,
        for whatever else importing or constructing one raises: the engine goes on, since the
        operator did not select it, the request did.
        """
        registry = self._plugins.registry
        names = [
            name
            for name in request.sampling_params.extensions
            if name in self._offered or registry.find(_KIND, name)
        ]
        return [self._make(name, request, vocab_size) for name in sorted(names)]

    def _make(self, name: str, request: NewRequest, vocab_size: int) -> LogitsProcessor:
        offered = self._offered.get(name)
        if offered is None:
            offered = self._offered[name] = self._offer(name)
        counter = offered.counter
        counter.calls += 1
        begin = perf_counter()
        try:
            return self._construct(offered, request, vocab_size)
        finally:
            counter.seconds += perf_counter() - begin

    def _offer(self, name: str) -> _Offered:
        """Import it. What goes wrong is kept: trying again would hold up a step each time."""
        found = self._plugins.resolve(_KIND, name)
        counter = self._plugins.calls.counter(found.ref.name, found.kind.hook)
        try:
            make = self._plugins.factory(_KIND, name)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            offered = _Offered(found, None, "", counter)
            return offered._replace(broken=self._failure(offered, error))
        self._plugins.mark_used(_KIND, name)
        return _Offered(found, make, "", counter)

    def _construct(
        self, offered: _Offered, request: NewRequest, vocab_size: int
    ) -> LogitsProcessor:
        params, provider = request.sampling_params, offered.found.provider
        plugin = offered.found.ref.name
        if offered.make is None:
            raise RequestFailedError(offered.broken, request_id=request.request_id, plugin=plugin)
        try:
            made: LogitsProcessor = offered.make(
                request_id=request.request_id,
                params=params,
                request_options=msgspec.convert(
                    params.extensions[provider.name], provider.request_options
                ),
                vocab_size=vocab_size,
            )
        except KeyboardInterrupt:
            raise
        except RequestError as error:  # on purpose, so neither logged nor counted
            raise InvalidRequestError(
                f"{offered.what} refuses the request: {error}",
                param=f"extensions.{provider.name}",
            ) from error
        except BaseException as error:
            message = self._failure(offered, error)
            raise RequestFailedError(
                message, request_id=request.request_id, plugin=plugin
            ) from error
        return made

    def _failure(self, offered: _Offered, error: BaseException) -> str:
        """What the request is told. Logged once for a provider: requests can repeat it at will."""
        # Errors of the plugin manager name provider and plugin already.
        named = isinstance(error, PluginError)
        message = str(error) if named else f"{offered.what}: {describe(error)}"
        name = offered.found.provider.name
        if name not in self._logged:
            self._logged.add(name)
            logger.warning("%s (said once; more are counted)", message, exc_info=error)
        return message
