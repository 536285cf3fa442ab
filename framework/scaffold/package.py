"""Writes a plugin package."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from string import Template

import msgspec
from packaging.version import Version

from framework.plugins.discovery import BUILTIN_DISTRIBUTION, installed_version
from framework.scaffold.names import Names, names_of
from framework.scaffold.templates import About, about_of, check_kind, files_of
from hookspecs.errors import ConfigError
from hookspecs.version import API_VERSION

__all__ = ["new_package"]


def new_package(
    kind: str, name: str, directory: Path, *, distribution: str | None = None
) -> list[Path]:
    """Write the package of a plugin into `directory`, which must not be there or be empty; returns
    its files. `distribution` None: `framework-NAME`.

    ConfigError for an unknown kind, a name that can not be used, or a directory that is in use or
    can not be written.
    """
    check_kind(kind)
    names = names_of(name, distribution)
    templates = files_of(kind)
    _check_class_name(names, [text for path, text in templates.items() if path.suffix == ".py"])
    words = _words(kind, names)
    files = {
        directory / str(path).replace("PACKAGE", names.package): _fill(text, words)
        for path, text in templates.items()
    }
    try:
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise ConfigError(
                f"{str(directory)!r} is there already; nothing was written. Remove it, or give "
                "another directory"
            )
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"the package can not be written to {str(directory)!r}: {error}"
        ) from error
    return list(files)


def _check_class_name(names: Names, modules: Iterable[str]) -> None:
    """A class of the package must not have the name of another that it uses."""
    if re.search(rf"\b{names.class_name}\b", "\n".join(modules)):
        raise ConfigError(
            f"the name {names.name!r} gives a class {names.class_name!r}, a word that the code of "
            "the package uses already; choose a longer name"
        )


def _words(kind: str, names: Names) -> dict[str, str]:
    """What placeholders stand for."""
    major, minor = API_VERSION
    words = {
        "kind": kind,
        "suite": "".join(part.capitalize() for part in kind.split("_")) + "Conformance",
        "api": f">={major}.{minor},<{major + 1}",
        "name": names.name,
        "package": names.package,
        "Class": names.class_name,
        "distribution": names.distribution,
    }
    about = msgspec.convert(tomllib.loads(_fill(about_of(kind), words)), About)
    dependencies = [_this_distribution(), *about.dependencies]
    return {
        **words,
        "summary": about.summary,
        "about": about.about.strip(),
        "configure": about.configure.strip("\n"),
        "dependencies": ", ".join(f'"{each}"' for each in dependencies),
    }


def _this_distribution() -> str:
    """From the release that runs on; what is compatible is checked against `PLUGIN.api`."""
    version = installed_version(BUILTIN_DISTRIBUTION)
    if version is None:
        return BUILTIN_DISTRIBUTION
    parsed = Version(version)
    return f"{BUILTIN_DISTRIBUTION}>={parsed.major}.{parsed.minor}"


def _fill(template: str, words: Mapping[str, str]) -> str:
    return Template(template).substitute(words)
