"""The names that a new package is written with, and which are allowed."""

from __future__ import annotations

import importlib.util
import keyword
from typing import Final

import msgspec
from packaging.utils import InvalidName, canonicalize_name

from framework.config import load_config
from framework.plugins.discovery import BUILTIN_DISTRIBUTION, installed_version
from framework.plugins.manager import PluginManager
from framework.plugins.manifest import is_plugin_name
from hookspecs.errors import ConfigError

__all__ = ["MAX_NAME", "Names", "names_of"]

MAX_NAME: Final = 32
"""Characters. With more of them, lines of the package that hold the name would be too long."""
_PREFIX: Final = "framework-"
_OWN_FILES: Final = frozenset(
    ("build", "conformance", "conftest", "dist", "src", "test", "test_conformance", "tests")
)
"""Packages that would hide the tests of the package or its folders, or take the place of a file:
`tests/test_conformance.py` is in every one, and build/ and dist/ are ignored."""


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """One name in the forms that are needed."""

    name: str
    """Of the plugin, its provider, and its options."""
    package: str
    class_name: str
    distribution: str


def names_of(name: str, distribution: str | None = None) -> Names:
    """`distribution` None: `framework-NAME`. ConfigError for a name that can not be used, or that
    is taken by what is installed."""
    if not is_plugin_name(name) or not name[0].isalpha() or len(name) > MAX_NAME:
        raise ConfigError(
            f"{name!r} can not be the name of a plugin: it takes lower case letters, digits and "
            f"single '-' between them, a letter first, and at most {MAX_NAME} characters"
        )
    package = name.replace("-", "_")
    class_name = "".join(part.capitalize() for part in name.split("-"))
    if keyword.iskeyword(package) or keyword.iskeyword(class_name):
        raise ConfigError(f"{name!r} is a word of the Python language; choose another name")
    given = f"{_PREFIX}{name}" if distribution is None else distribution
    try:
        canonicalize_name(given, validate=True)
    except InvalidName as error:
        raise ConfigError(
            f"{given!r} can not be the name of a distribution: it takes letters, digits and '.', "
            "'-', '_' between them"
        ) from error
    _check_free(name, package)
    _check_distribution(given)
    return Names(name=name, package=package, class_name=class_name, distribution=given)


def _check_free(name: str, package: str) -> None:
    """Plugins, providers and options have one space of names; modules have another."""
    for plugin in PluginManager.build(load_config(environ={}).config).loaded.values():
        taken = {plugin.info.name, *(found.provider.name for found in plugin.providers)}
        if name in taken:
            raise ConfigError(
                f"the name {name!r} is taken by the installed {plugin.ref}; choose another, or "
                "uninstall it"
            )
    if package in _OWN_FILES:
        raise ConfigError(
            f"a package {package!r} would get in the way of its own files and tests; choose "
            "another name"
        )
    spec = importlib.util.find_spec(package)
    # A directory that only has this name is found too, without an origin.
    if spec is not None and spec.origin is not None:
        raise ConfigError(
            f"there is a module {package!r} already ({spec.origin}), which the package would "
            "hide; choose another name"
        )


def _check_distribution(given: str) -> None:
    """To install one of a name replaces what is installed by it."""
    name = canonicalize_name(given)
    if name == BUILTIN_DISTRIBUTION or installed_version(name) is not None:
        raise ConfigError(
            f"there is a distribution {name!r} already, which the package would replace; give "
            "another --distribution"
        )
