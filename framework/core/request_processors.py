"""The logits processors that a request asks for. Called where its worker runs."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from framework.plugins.failure import describe
from framework.plugins.manager import PluginManager
from hookspecs.contracts.logits import LogitsProcessor
from hookspecs.errors import PluginError, RequestError, RequestFailedError
from hookspecs.types.step import NewRequest

__all__ = ["create_logits_processors"]

_KIND = "logits_processor"

logger = logging.getLogger("framework.core")


def create_logits_processors(
    plugins: PluginManager, request: NewRequest, vocab_size: int
) -> Sequence[LogitsProcessor]:
    """Those that `sampling_params.extensions` names, in the order of their names; names that are
    of other kinds' providers are not this function's.

    RequestFailedError, with the plugin, for whatever importing or constructing one raises: the
    engine goes on, since the operator did not select it, the request did.
    """
    params = request.sampling_params
    names = [name for name in params.extensions if plugins.registry.find(_KIND, name)]
    made: list[LogitsProcessor] = []
    for name in sorted(names):
        try:
            made.append(plugins.create(_KIND, name, params=params, vocab_size=vocab_size))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            plugin = plugins.resolve(_KIND, name).ref.name
            what = f"logits processor {name!r} of plugin {plugin!r}"
            if isinstance(error, RequestError):  # on purpose, so without a traceback
                message = f"{what} refuses the request: {error}"
            else:
                # Errors that `create` makes name provider and plugin already.
                named = isinstance(error, PluginError)
                message = str(error) if named else f"{what}: {describe(error)}"
                logger.warning("%s", message, exc_info=error)
            raise RequestFailedError(
                message, request_id=request.request_id, plugin=plugin
            ) from error
    return made
