"""Installed plugins that are broken: what `launch` and `framework plugins list` make of each."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import framework
from framework.cli.main import main
from framework.plugins.calls import Calls
from hookspecs import EngineHooks, PluginInfo, RequestOutput, SamplingParams, hookimpl
from hookspecs.errors import (
    ApiVersionError,
    ContractViolation,
    EngineDeadError,
    FrameworkError,
    PluginConflictError,
    PluginError,
    PluginLoadError,
    StepError,
)
from hookspecs.events import EngineFailed, PluginFailed

PARAMS = SamplingParams(max_tokens=6, temperature=0, detokenize=False)
PROMPTS = [[3, 4], [5, 6, 7]]

HEAD = """
from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
"""
BODY = """
class Bad(EngineHooks):
    PLUGIN = PluginInfo(name="bad", api="{api}", provides={provides})
    calls = 0

{methods}

plugin = Bad()
"""


def module(methods: str = "", *, api: str = ">=1.0,<2", provides: str = "()", top: str = "") -> str:
    """A module with the plugin `bad`."""
    return HEAD + top + BODY.format(methods=methods, api=api, provides=provides)


def config(**sections: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The scripted worker, and `sections`."""
    made: dict[str, dict[str, Any]] = {
        "model": {"name": "scripted"},
        "executor": {"worker": "scripted"},
        "stats": {"loggers": []},
    }
    for name, section in sections.items():
        made[name] = made.get(name, {}) | dict(section)
    return made


class Ear(EngineHooks):
    """Hears of failures."""

    PLUGIN = PluginInfo(name="ear", api=">=1.0,<2")

    def __init__(self) -> None:
        self.plugins: list[PluginFailed] = []
        self.engines: list[EngineFailed] = []

    @hookimpl
    def on_plugin_failed(self, event: PluginFailed) -> None:
        self.plugins.append(event)

    @hookimpl
    def on_engine_failed(self, event: EngineFailed) -> None:
        self.engines.append(event)


def tokens(outputs: list[RequestOutput]) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in outputs]


@pytest.fixture
def expected() -> list[list[int]]:
    """Tokens without the broken plugin; requested before it is installed."""
    with framework.launch(config()) as engine:
        return tokens(engine.generate(PROMPTS, PARAMS))


def listed(capsys: pytest.CaptureFixture[str], *settings: str) -> dict[str, Any]:
    """The plugin `bad` in `framework plugins list --json`."""
    assert main(["plugins", "list", "--json", *settings]) == 0
    (found,) = [one for one in json.loads(capsys.readouterr().out) if one["name"] == "bad"]
    result: dict[str, Any] = found
    return result


# Plugins that can not be loaded

UNLOADABLE: dict[str, tuple[str, type[FrameworkError], str]] = {
    "import error": (
        module(top="import package_that_is_not_there"),
        PluginLoadError,
        "package_that_is_not_there",
    ),
    "syntax error": ("def plugin(:", PluginLoadError, "SyntaxError"),
    "module raises": (module(top="raise ValueError('on import')"), PluginLoadError, "on import"),
    "no object": ("plugins = 1", PluginLoadError, "plugin"),
    "later contract": (module(api=">=2.0"), ApiVersionError, "2.0"),
    "no version": (module(api="soon"), PluginLoadError, "soon"),
    "async hook": (
        module("    @hookimpl\n    async def on_step_finished(self, event):\n        pass"),
        PluginLoadError,
        "async",
    ),
    "async register hook": (
        module("    @hookimpl\n    async def register_workers(self):\n        return []"),
        PluginLoadError,
        "async",
    ),
    "no such hook": (
        module("    @hookimpl\n    def on_step_finnished(self, event):\n        pass"),
        PluginLoadError,
        "on_step_finnished",
    ),
    "register returns None": (
        module("    @hookimpl\n    def register_workers(self):\n        return None"),
        FrameworkError,
        "register_workers",
    ),
    "register yields a string": (
        module("    @hookimpl\n    def register_workers(self):\n        yield 'worker'"),
        FrameworkError,
        "register_workers",
    ),
    "register raises": (
        module("    @hookimpl\n    def register_workers(self):\n        raise OSError('disk')"),
        PluginLoadError,
        "disk",
    ),
}


@pytest.mark.parametrize("case", UNLOADABLE)
def test_a_plugin_that_can_not_be_loaded_is_left_out(
    case: str, expected: list[list[int]], site: Any, caplog: pytest.LogCaptureFixture
) -> None:
    code, _, words = UNLOADABLE[case]
    site.plugin("bad", code)
    with caplog.at_level(logging.WARNING), framework.launch(config()) as engine:
        assert tokens(engine.generate(PROMPTS, PARAMS)) == expected
        (report,) = [report for report in engine.plugins() if report.name == "bad"]
    assert str(report.state) == "broken"
    assert words in (report.error or "")
    warnings = [record for record in caplog.records if "bad-dist" in record.getMessage()]
    assert [record.levelname for record in warnings] == ["WARNING"]


@pytest.mark.parametrize("field", ["required", "enable"])
@pytest.mark.parametrize("case", UNLOADABLE)
def test_unless_the_operator_names_it(case: str, field: str, site: Any) -> None:
    code, error, words = UNLOADABLE[case]
    site.plugin("bad", code)
    with pytest.raises(error, match=words) as caught:
        framework.launch(config(plugins={field: ["bad"]}))
    assert isinstance(caught.value, PluginError)
    assert (caught.value.plugin, "bad-dist" in str(caught.value)) == ("bad", True)


@pytest.mark.parametrize("case", UNLOADABLE)
def test_the_list_shows_it_with_the_reason(
    case: str, site: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, words = UNLOADABLE[case]
    site.plugin("bad", code)
    report = listed(capsys)
    assert report["state"] == "broken"
    assert words in report["error"]
    assert main(["plugins", "list"]) == 0
    assert "bad is broken" in capsys.readouterr().out
    assert listed(capsys, "--plugins.block=bad")["state"] == "disabled"
    assert main(["plugins", "list", "--plugins.required=bad"]) == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("case", UNLOADABLE)
def test_the_rescue_switch_starts_without_it(
    case: str, site: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site.plugin("bad", UNLOADABLE[case][0])
    monkeypatch.setenv("FRAMEWORK_PLUGINS", "none")
    with framework.launch(config()) as engine:
        assert len(engine.generate(PROMPTS, PARAMS)) == 2
    assert listed(capsys)["state"] == "disabled"


# Names that collide


def test_two_distributions_of_one_name(
    site: Any, expected: list[list[int]], capsys: pytest.CaptureFixture[str]
) -> None:
    site.plugin("bad", module(), distribution="one")
    site.plugin("bad", module(), distribution="two")
    with pytest.raises(PluginConflictError, match=r"one.*two"):
        framework.launch(config())
    assert main(["plugins", "list"]) == 2
    error = capsys.readouterr().err
    assert ("one" in error, "two" in error) == (True, True)
    with framework.launch(config(plugins={"block": ["bad"]})) as engine:
        assert tokens(engine.generate(PROMPTS, PARAMS)) == expected


def test_two_providers_of_one_name(site: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code = """
    @hookimpl
    def register_schedulers(self):
        yield Provider("continuous", "site_bad:Missing")
"""
    site.plugin("bad", module(code))
    with pytest.raises(PluginConflictError, match=r"bad") as caught:
        framework.launch(config())
    assert "bad-dist:continuous" in str(caught.value)
    assert main(["plugins", "list"]) == 2
    capsys.readouterr()
    with framework.launch(config(plugins={"block": ["bad"]})):
        pass


# Observers

RAISING = """
    @hookimpl
    def on_step_finished(self, event):
        raise ValueError("boom")
"""


def test_a_raising_observer_reaches_no_request(
    expected: list[list[int]], site: Any, caplog: pytest.LogCaptureFixture
) -> None:
    site.plugin("bad", module(RAISING))
    ear = Ear()
    with framework.launch(config(), plugins=[ear]) as engine:
        assert tokens(engine.generate(PROMPTS, PARAMS)) == expected
        (report,) = [report for report in engine.plugins() if report.name == "bad"]
    assert report.errors == {"on_step_finished": 3}
    assert report.calls == {"on_step_finished": 3}
    assert [(e.plugin, e.hook, e.action) for e in ear.plugins] == [
        ("bad", "on_step_finished", "logged"),
        ("bad", "on_step_finished", "quarantined"),
    ]
    assert sum(record.exc_info is not None for record in caplog.records) == 1
    assert not ear.engines


def test_a_raising_observer_stops_an_engine_that_is_debugged(site: Any) -> None:
    site.plugin("bad", module(RAISING))
    ear = Ear()
    debug = config(engine={"debug": True})
    with framework.launch(debug, plugins=[ear]) as engine:
        with pytest.raises(PluginError, match="boom") as caught:
            engine.generate(PROMPTS, PARAMS)
        assert caught.value.plugin == "bad"
        with pytest.raises(EngineDeadError):
            engine.generate(PROMPTS, PARAMS)
    assert [event.plugin for event in ear.engines] == ["bad"]


def test_the_list_shows_an_observer_that_was_not_called_yet(
    site: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    site.plugin("bad", module(RAISING))
    report = listed(capsys)
    assert (report["state"], report["hooks"]) == ("active", ["on_step_finished"])
    assert not any(report["errors"].values())
    assert listed(capsys, "--plugins.activation=none")["state"] == "disabled"


def test_a_slow_observer_is_named_once(
    site: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The clock stands still but for this observer, whose every call takes an hour."""
    code = """
    @hookimpl
    def on_step_finished(self, event):
        NOW[0] += 3600.0
"""
    site.plugin("bad", module(code, top="NOW = [0.0]\n"))

    def clock() -> float:
        return float(sys.modules["site_bad"].NOW[0])

    defaults = Calls.__init__.__kwdefaults__ or {}
    monkeypatch.setitem(defaults, "clock", clock)
    steps = SamplingParams(max_tokens=250, temperature=0, detokenize=False)
    with framework.launch(config()) as engine:
        (output,) = engine.generate([[3]], steps)
    assert len(output.outputs[0].token_ids) == 250
    slow = [record.getMessage() for record in caplog.records if "slow" in record.getMessage()]
    assert len(slow) == 1
    assert "bad-dist" in slow[0]


# Results of a wrong type


def test_a_wrong_output_ends_that_request(site: Any) -> None:
    code = """
    @hookimpl
    def adjust_output(self, event):
        return "text" if event.output.prompt_token_ids == [3, 4] else None
"""
    site.plugin("bad", module(code))
    with framework.launch(config(plugins={"enable": ["bad"]})) as engine:
        wrong, right = engine.generate(PROMPTS, PARAMS)
    assert wrong.outputs[0].finish_reason == "error"
    assert right.outputs[0].finish_reason == "length"


def test_a_wrong_request_fails_that_request(site: Any, expected: list[list[int]]) -> None:
    code = """
    @hookimpl
    def adjust_request(self, event):
        return 7 if event.prompt_token_ids == [9] else None
"""
    site.plugin("bad", module(code))
    with framework.launch(config(plugins={"enable": ["bad"]})) as engine:
        (wrong,) = engine.generate([[9]], PARAMS)
        assert tokens(engine.generate(PROMPTS, PARAMS)) == expected
    assert wrong.outputs[0].finish_reason == "error"
    assert "adjust_request" in (wrong.outputs[0].error or "")


def test_a_wrong_configuration_stops_the_start(site: Any) -> None:
    code = """
    @hookimpl
    def adjust_config(self, event):
        return {"scheduler": {}}
"""
    site.plugin("bad", module(code))
    with pytest.raises(ContractViolation, match="adjust_config") as caught:
        framework.launch(config())
    assert caught.value.plugin == "bad"


def test_a_wrapper_with_a_wrong_result_stops_the_engine(
    site: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    code = """
    @hookimpl(wrapper=True)
    def schedule(self):
        yield
        return 5
"""
    site.plugin("bad", module(code, provides="('wrap:schedule',)"))
    ear = Ear()
    with framework.launch(config(), plugins=[ear]) as engine:
        with pytest.raises(ContractViolation, match="schedule"):
            engine.generate(PROMPTS, PARAMS)
        with pytest.raises(EngineDeadError):
            engine.generate(PROMPTS, PARAMS)
    assert len(ear.engines) == 1
    assert listed(capsys)["state"] == "active"


def test_a_wrapper_that_raises_stops_the_engine(site: Any) -> None:
    code = """
    @hookimpl(wrapper=True)
    def schedule(self):
        yield
        raise OSError("no disk")
"""
    site.plugin("bad", module(code, provides="('wrap:schedule',)"))
    ear = Ear()
    with framework.launch(config(), plugins=[ear]) as engine:
        with pytest.raises(StepError, match="no disk") as caught:
            engine.generate(PROMPTS, PARAMS)
        with pytest.raises(EngineDeadError):
            engine.generate(PROMPTS, PARAMS)
    assert (caught.value.plugin, caught.value.hook) == ("bad", "schedule")
    assert [event.plugin for event in ear.engines] == ["bad"]


SELECTED = """
from hookspecs.contracts.scheduler import Scheduler
from hookspecs.contracts.policy import SchedulingPolicy

class Half(Scheduler):
    pass

class Other:
    def __init__(self, context):
        pass

class Raises(SchedulingPolicy):
    def __init__(self, context):
        raise OSError("no disk")

class Wrong(SchedulingPolicy):
    def admit(self, request, view):
        return True
"""
OFFERED = """
    @hookimpl
    def register_schedulers(self):
        yield Provider("half", "site_bad:Half")
        yield Provider("other", "site_bad:Other")
        yield Provider("gone", "site_bad:Gone")

    @hookimpl
    def register_scheduling_policies(self):
        yield Provider("raises", "site_bad:Raises")
        yield Provider("wrong", "site_bad:Wrong")
"""


@pytest.fixture
def offered(site: Any) -> Iterator[None]:
    """Providers that are wrong in themselves, in a plugin that loads."""
    site.plugin("bad", module(OFFERED, top=SELECTED))
    yield


@pytest.mark.parametrize(
    ("scheduler", "words"),
    [
        ({"name": "half"}, "schedule"),
        ({"name": "other"}, "Scheduler"),
        ({"name": "gone"}, "Gone"),
        ({"policies": ["raises"]}, "no disk"),
    ],
)
def test_a_selected_provider_that_is_wrong_stops_the_start(
    offered: None, scheduler: dict[str, Any], words: str
) -> None:
    with pytest.raises(PluginError, match=words) as caught:
        framework.launch(config(scheduler=scheduler))
    assert caught.value.plugin == "bad"


def test_wrong_providers_that_nobody_selects_do_no_harm(
    expected: list[list[int]], offered: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with framework.launch(config()) as engine:
        assert tokens(engine.generate(PROMPTS, PARAMS)) == expected
    assert listed(capsys)["state"] == "unused"


def test_a_policy_with_a_wrong_answer_stops_the_engine(offered: None) -> None:
    ear = Ear()
    wrong = config(scheduler={"policies": ["wrong"]})
    with (
        framework.launch(wrong, plugins=[ear]) as engine,
        pytest.raises(ContractViolation, match="admit") as caught,
    ):
        engine.generate(PROMPTS, PARAMS)
    assert caught.value.plugin == "bad"
    assert [event.plugin for event in ear.engines] == ["bad"]
