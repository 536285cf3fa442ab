"""Installs distributions for a test: sources and a `.dist-info` on `sys.path`, without pip."""

from __future__ import annotations

import importlib
import os
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ACME = Path(__file__).parent / "acme"


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of whoever runs the tests."""
    for name in [name for name in os.environ if name.startswith("FRAMEWORK_")]:
        monkeypatch.delenv(name)


class Site:
    """Puts distributions on the path."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root = root
        self._monkeypatch = monkeypatch

    def install(
        self,
        distribution: str,
        version: str,
        entry_points: Mapping[str, str],
        source: Path,
    ) -> None:
        """Metadata for the modules that lie in `source`."""
        info = self._root / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        )
        lines = [f"{name} = {value}" for name, value in entry_points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[framework.plugins]", *lines, ""]))
        for directory in (self._root, source):
            self._monkeypatch.syspath_prepend(str(directory))
        importlib.invalidate_caches()

    def plugin(self, name: str, code: str, *, distribution: str | None = None) -> None:
        """A distribution of one plugin in one module that defines `plugin`."""
        module = f"site_{(distribution or name).replace('-', '_')}"
        (self._root / f"{module}.py").write_text(code)
        self.install(distribution or f"{name}-dist", "1.0", {name: f"{module}:plugin"}, self._root)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Modules that a test imports from its site are forgotten after it."""
    before = set(sys.modules)
    yield Site(tmp_path, monkeypatch)
    for name in set(sys.modules) - before:
        if name.startswith(("acme_engine", "site_")):
            del sys.modules[name]


@pytest.fixture
def acme(site: Site) -> str:
    """The package `acme-engine-parts`, installed as its pyproject.toml says; its plugin."""
    project = tomllib.loads((ACME / "pyproject.toml").read_text())["project"]
    entry_points = project["entry-points"]["framework.plugins"]
    site.install(project["name"], project["version"], entry_points, ACME / "src")
    (name,) = entry_points
    return str(name)
