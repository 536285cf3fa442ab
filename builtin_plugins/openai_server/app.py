"""The ASGI application: all endpoints behind the middleware."""

from __future__ import annotations

from starlette.types import ASGIApp

from builtin_plugins.openai_server import (
    admin,
    chat,
    completions,
    embeddings,
    health,
    info,
    messages,
    metrics,
    models,
    responses,
    tokenization,
)
from builtin_plugins.openai_server.dispatch import Dispatcher
from builtin_plugins.openai_server.endpoint import Endpoint, Service
from builtin_plugins.openai_server.hosts import LoopbackHosts, checks_hosts
from builtin_plugins.openai_server.middleware import ApiKeys, RequestId, with_cors
from builtin_plugins.openai_server.openapi import openapi_endpoint
from builtin_plugins.openai_server.options import OpenAIOptions
from builtin_plugins.openai_server.routing import Routes
from builtin_plugins.openai_server.unread import CloseUnread
from hookspecs.contracts.frontend import FrontendContext

__all__ = ["build_app", "endpoints_of"]

_MODULES = (
    completions,
    chat,
    responses,
    messages,
    embeddings,
    tokenization,
    models,
    health,
    metrics,
    info,
    admin,
)


def endpoints_of(options: OpenAIOptions) -> tuple[Endpoint, ...]:
    """All endpoints that exist with these options, but for the OpenAPI document."""
    return tuple(
        endpoint
        for module in _MODULES
        for endpoint in module.ENDPOINTS
        if options.admin_routes or not endpoint.admin
    )


def build_app(context: FrontendContext, options: OpenAIOptions) -> ASGIApp:
    """An ASGI 3 application for the scope `http`; it starts and stops nothing."""
    engine, config = context.engine, context.config
    keys = config.serving.api_keys
    service = Service(
        engine=engine,
        config=config,
        options=options,
        model_names=options.model_names or (engine.info.model,),
    )
    endpoints = endpoints_of(options)
    own = openapi_endpoint(endpoints, service)
    routes = Routes((*endpoints, own))
    app: ASGIApp = Dispatcher(service, routes, context.routes)
    if keys:
        public = frozenset(endpoint.path for endpoint in endpoints if endpoint.public)
        app = ApiKeys(app, keys, public, routes)
    if options.cors_origins:
        app = with_cors(app, options.cors_origins)
    if checks_hosts(config.serving):
        app = LoopbackHosts(app, config.serving.host, routes)
    return CloseUnread(RequestId(app))
