"""What `framework serve` says once it serves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from framework.cli.main import main
from framework.plugins.manager import PluginManager
from hookspecs.config import EngineConfig

ROUTES = """
from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl


class GreetPlugin(EngineHooks):
    PLUGIN = PluginInfo(name="greet", api=">=1.0,<2", description="Says hello.")

    @hookimpl
    def register_http_routes(self):
        yield Provider("greet", "greet_plugin:Greet")


plugin = GreetPlugin()
"""
NOT_ENABLED = "plugins.enable does not name the plugin"


def _serve(
    config: EngineConfig,
    *,
    report: Callable[[str], None],
    progress: Callable[[str, float], None],
    serving: Callable[[str, PluginManager], None],
) -> int:
    """In place of `framework.serve`: nothing is started."""
    serving("http://127.0.0.1:8000", PluginManager.build(config))
    return 0


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def said(*settings: str) -> str:
        assert main(["serve", "scripted", *settings], serve=_serve) == 0
        return capsys.readouterr().err

    return said


def test_the_selected_parts_are_named(said: Callable[..., str]) -> None:
    line = (
        "plugins: front end openai; scheduler continuous; policies fcfs; KV cache paged; eviction"
    )
    assert f"framework: {line} lru; executor uniproc" in said()
    assert said().endswith("framework: serving scripted at http://127.0.0.1:8000 (Ctrl-C stops)\n")


def test_routes_are_named_and_so_are_those_that_are_withheld(
    said: Callable[..., str], installer: Any
) -> None:
    installer.install(module=ROUTES)
    enabled, left_out = said("--plugins.enable=greet"), said("--plugins.block=greet")
    assert "framework: routes of plugins: /plugins/greet/\n" in enabled
    assert "greet" not in _withheld(enabled, NOT_ENABLED)
    assert "greet" not in left_out
    assert "greet" in _withheld(said(), NOT_ENABLED)
    settings = ("--plugins.activation=none", "--plugins.enable=greet")
    assert "greet" in _withheld(said(*settings), "plugins.activation is none")
    assert "/plugins/greet/" not in said() + said(*settings)


def _withheld(text: str, why: str) -> str:
    """The plugins whose routes are withheld; other ones may be installed."""
    start = f"framework: routes withheld, because {why}: "
    return "".join(line for line in text.splitlines() if line.startswith(start))
