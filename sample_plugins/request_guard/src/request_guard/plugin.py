"""The entry point: three filters, each a few lines that call what decides."""

from __future__ import annotations

import msgspec
from hookspecs import EngineHooks, PluginInfo, ProcessRole, hookimpl
from hookspecs.contracts.base import PluginContext
from hookspecs.errors import PluginConfigError
from hookspecs.events import ConfigResolved, OutputReady, RequestReceived, RequestRejected

from request_guard.limits import limited
from request_guard.options import RequestGuardOptions
from request_guard.redaction import Redaction
from request_guard.streams import Streams

__all__ = ["RequestGuardPlugin", "plugin"]


class RequestGuardPlugin(EngineHooks):
    """Launcher: looks at the configuration. Front end: at requests and outputs."""

    PLUGIN = PluginInfo(
        name="request-guard",
        api=">=1.0,<2",
        description="Filters: limits of tenants, and texts that outputs must not show",
        roles=frozenset({ProcessRole.LAUNCHER, ProcessRole.FRONTEND}),
        options=RequestGuardOptions,
    )

    def __init__(self, options: RequestGuardOptions | None = None) -> None:
        self.options = options or RequestGuardOptions()
        self.streams = Streams(Redaction(self.options.redact))

    def configured(self, context: PluginContext) -> RequestGuardPlugin:
        """An object with the options, and with the streams of this engine alone."""
        return RequestGuardPlugin(context.options)

    @hookimpl
    def adjust_config(self, event: ConfigResolved) -> ConfigResolved | None:
        """Refuse limits that mean nothing; share between tenants if that is wanted."""
        longest = event.config.model.max_model_len
        for tenant, most in self.options.max_tokens.items():
            if longest is not None and most > longest:
                raise PluginConfigError(
                    f"plugins.options.request-guard.max_tokens gives tenant {tenant!r} {most} "
                    f"tokens, but no request has more than model.max_model_len, which is "
                    f"{longest}; lower the one or raise the other",
                    plugin=self.PLUGIN.name,
                )
        scheduler = event.config.scheduler
        if not self.options.share_fairly or "fair_share" in scheduler.policies:
            return None
        scheduler = msgspec.structs.replace(scheduler, policies=("fair_share", *scheduler.policies))
        return ConfigResolved(config=msgspec.structs.replace(event.config, scheduler=scheduler))

    @hookimpl
    def adjust_request(self, event: RequestReceived) -> RequestReceived | RequestRejected | None:
        """Hold the request to the limits of its tenant."""
        self.streams.begin(event.request_id)
        return limited(event, self.options)

    @hookimpl
    def adjust_output(self, event: OutputReady) -> OutputReady | None:
        """Mask its texts."""
        if not self.options.redact:
            return None
        output = self.streams.masked(event.output, event.output_kind)
        return msgspec.structs.replace(event, output=output)


plugin = RequestGuardPlugin()
