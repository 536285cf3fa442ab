"""Every way to fail, one documented class each, in `hookspecs.errors`.

A message has three parts: what happened, who caused it (plugin, distribution), what to do.
Raised in any process; the kernel carries class name and message across processes.
"""

from __future__ import annotations

__all__ = [
    "ApiVersionError",
    "CommandError",
    "ConfigError",
    "ContractViolation",
    "EngineDeadError",
    "EngineGenerateError",
    "EngineUnavailableError",
    "FrameworkError",
    "InternalError",
    "InvalidRequestError",
    "MissingDependencyError",
    "ModelNotFoundError",
    "PluginConfigError",
    "PluginConflictError",
    "PluginError",
    "PluginLoadError",
    "PluginOrderError",
    "ProviderError",
    "ProviderNotFoundError",
    "QueueFullError",
    "RequestError",
    "RequestFailedError",
    "StepError",
    "TransportError",
    "UnsupportedFeatureError",
    "UnsupportedModelError",
]


class FrameworkError(Exception):
    """Base of all errors that this project raises on purpose."""


class ConfigError(FrameworkError):
    """A configuration value is unknown, of the wrong type or out of bounds."""


class ModelNotFoundError(FrameworkError):
    """A model name could not be resolved to files."""


class UnsupportedModelError(FrameworkError):
    """The model exists, but its architecture or files can not be served."""


class UnsupportedFeatureError(FrameworkError):
    """A feature was asked for by name that a selected plugin does not declare."""


class MissingDependencyError(FrameworkError):
    """An optional package is needed; the message names the extra that installs it."""


class PluginError(FrameworkError):
    """Something is wrong with one plugin.

    Attributes: `plugin` (its name), `distribution` (what installed it, or None for a local
    object), `hook` (the hook concerned, or None).
    """

    def __init__(
        self,
        message: str,
        *,
        plugin: str | None = None,
        distribution: str | None = None,
        hook: str | None = None,
    ) -> None:
        super().__init__(message)
        self.plugin = plugin
        self.distribution = distribution
        self.hook = hook


class PluginLoadError(PluginError):
    """A plugin could not be imported or registered."""


class PluginConfigError(PluginError, ConfigError):
    """Options given for a plugin do not match its options struct."""


class PluginConflictError(PluginError):
    """Two plugins, or two providers of one kind, claim one name."""


class PluginOrderError(PluginError):
    """The `before`/`after` constraints of plugins form a circle."""


class ApiVersionError(PluginError):
    """A plugin was written for a version of the contract that this one is not."""


class ProviderNotFoundError(PluginError, ConfigError):
    """The configuration selects a provider that no plugin registers."""


class ProviderError(PluginError):
    """A selected provider could not be imported or constructed."""


class ContractViolation(PluginError):
    """A plugin returned or did what its contract forbids."""


class StepError(PluginError):
    """A phase of a step raised; the engine stops. `hook` is the phase."""


class RequestError(FrameworkError):
    """One request can not be served; other requests are not affected."""


class InvalidRequestError(RequestError, ValueError):
    """A request is wrong in itself (HTTP 400). It never reaches the engine.

    Attributes: `param` (field name), `value` (what was given; may be shortened).
    """

    def __init__(self, message: str, *, param: str | None = None, value: object = None) -> None:
        super().__init__(message)
        self.param = param
        self.value = value


class RequestFailedError(RequestError):
    """A valid request ended with an error. `request_id` names it."""

    def __init__(self, message: str, *, request_id: str, plugin: str | None = None) -> None:
        super().__init__(message)
        self.request_id = request_id
        self.plugin = plugin


class EngineDeadError(FrameworkError):
    """The engine core has stopped after a fatal error and takes no more requests."""


class EngineGenerateError(FrameworkError):
    """Generating failed for a reason that is neither the request's nor the engine's end; the
    cause is chained. The request was aborted."""


class EngineUnavailableError(FrameworkError):
    """The engine takes no new requests right now: it sleeps or drains (HTTP 503).

    Attributes: `retry_after_s` (seconds after which another try makes sense).
    """

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class QueueFullError(EngineUnavailableError):
    """As many requests wait as the configuration allows (HTTP 429)."""


class CommandError(FrameworkError):
    """A control command can not be done in the engine's present state, or failed."""


class TransportError(FrameworkError):
    """A message between processes can not be sent or read."""


class InternalError(FrameworkError):
    """An invariant of the kernel does not hold: a defect of this project. Please report it."""
