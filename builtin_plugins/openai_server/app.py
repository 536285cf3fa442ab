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

__all__ = ["build_app", "build_service", "endpoints_of"]

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


def build_service(context: FrontendContext, options: OpenAIOptions) -> Service:
    """What the handlers of this front end share."""
    return Service(
        engine=context.engine,
        config=context.config,
        options=options,
        model_names=options.model_names or (context.engine.info.model,),
    )


def build_app(context: FrontendContext, options: OpenAIOptions) -> ASGIApp:
    """An ASGI 3 application for the scope `http`; it starts and stops nothing."""
    service, serving = build_service(context, options), context.config.serving
    endpoints = endpoints_of(options)
    own = openapi_endpoint(endpoints, service)
    routes = Routes((*endpoints, own))
    app: ASGIApp = Dispatcher(service, routes, context.routes)
    if serving.api_keys:
        public = frozenset(endpoint.path for endpoint in endpoints if endpoint.public)
        app = ApiKeys(app, serving.api_keys, public, routes)
    if options.cors_origins:
        app = with_cors(app, options.cors_origins)
    if checks_hosts(serving):
        app = LoopbackHosts(app, serving.host, routes)
    return CloseUnread(RequestId(app))
