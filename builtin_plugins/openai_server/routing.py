"""Which endpoint a path and method mean."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.routing import compile_path

from builtin_plugins.openai_server.endpoint import Endpoint, ErrorForm, openai_error

__all__ = ["Routes"]


class Routes:
    """Paths without parameters are looked up; the others are tried in the order given."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self.endpoints = tuple(endpoints)
        self._exact: dict[str, dict[str, Endpoint]] = {}
        self._patterns: dict[str, tuple[Any, dict[str, Endpoint]]] = {}
        for endpoint in self.endpoints:
            if "{" in endpoint.path:
                pattern, _, _ = compile_path(endpoint.path)
                _, methods = self._patterns.setdefault(endpoint.path, (pattern, {}))
            else:
                methods = self._exact.setdefault(endpoint.path, {})
            if endpoint.method in methods:
                raise ValueError(f"{endpoint.method} {endpoint.path} is declared twice")
            methods[endpoint.method] = endpoint

    def find(self, path: str) -> tuple[dict[str, Endpoint], dict[str, str]] | None:
        """Method to endpoint, and the path's parameters; None for an unknown path."""
        methods = self._exact.get(path)
        if methods is not None:
            return methods, {}
        for pattern, found in self._patterns.values():
            match = pattern.match(path)
            if match and all(match.groupdict().values()):
                return found, match.groupdict()
        return None

    def error_body(self, path: str) -> ErrorForm:
        """The form of errors at a path, also an unknown one."""
        found = self.find(path)
        return next(iter(found[0].values())).error_body if found else openai_error
