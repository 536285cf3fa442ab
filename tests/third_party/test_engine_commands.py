"""Engine commands of installed plugins: listed, and at odds with each other."""

from __future__ import annotations

import pytest

import framework
from framework.launcher import Engine
from hookspecs.errors import InvalidRequestError, PluginConflictError
from tests.third_party.conftest import Site

CODE = """
from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.engine_command import EngineCommand


class Hello(EngineCommand):
    def run(self, arguments):
        return "hello"


class HelloPlugin(EngineHooks):
    PLUGIN = PluginInfo(name="NAME", api=">=1.0,<2")

    @hookimpl
    def register_engine_commands(self):
        yield Provider("hello", f"{__name__}:Hello")


plugin = HelloPlugin()
"""


def _launch(process: str, *enable: str) -> Engine:
    return framework.launch(
        {
            "model": {"name": "scripted"},
            "executor": {"worker": "scripted"},
            "stats": {"loggers": []},
            "engine": {"process": process},
            "plugins": {"enable": list(enable)},
        }
    )


@pytest.mark.parametrize("process", ["in_process", "separate"])
def test_commands_take_part_when_the_plugin_is_enabled(site: Site, process: str) -> None:
    site.plugin("greeter", CODE.replace("NAME", "greeter"))
    hint = r"no command 'hello'.*'greeter'.*has some, but plugins.enable does not name it"
    with _launch(process) as engine, pytest.raises(InvalidRequestError, match=hint):
        engine.command("hello", {})
    with _launch(process, "greeter") as engine:
        assert engine.command("hello", {}) == "hello"


def test_two_enabled_plugins_with_one_command_are_both_named(site: Site) -> None:
    for name in ("greeter", "welcomer"):
        site.plugin(name, CODE.replace("NAME", name))
    with _launch("in_process", "greeter") as engine:
        assert engine.command("hello", {}) == "hello"
    with pytest.raises(PluginConflictError, match=r"'hello'.*'greeter'.*'welcomer'.*plugins.block"):
        _launch("in_process", "greeter", "welcomer")
