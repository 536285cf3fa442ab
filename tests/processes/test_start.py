"""How an engine core process starts, and what its parent is told when it does not."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

import framework
from framework import SamplingParams
from framework.launcher import Engine
from framework.plugins.discovery import PluginRef, discover
from hookspecs import EngineHooks, PluginInfo
from hookspecs.errors import (
    ConfigError,
    EngineDeadError,
    FrameworkError,
    MissingDependencyError,
    PluginLoadError,
    ProviderError,
    UnsupportedModelError,
)
from tests.processes.launches import Place, config, drill_config, until
from tests.processes.plugins_for_tests import drill

SEPARATE = {"process": "separate"}


def launch_drill(*, drill_options: dict[str, Any], **sections: Any) -> Engine:
    sections["engine"] = {**SEPARATE, **sections.get("engine", {})}
    return framework.launch(drill_config(drill=drill_options, **sections), plugins=[drill])


def test_start_up_lines_come_from_the_child_and_requests_are_served() -> None:
    lines: list[str] = []
    with framework.launch(config(engine=SEPARATE), report=lines.append) as separate:
        params = SamplingParams(max_tokens=5, temperature=0, detokenize=False)
        there = [o.outputs[0].token_ids for o in separate.generate([[1, 2, 3], [4]], params)]
        assert separate.status().num_running == 0
    with framework.launch(config()) as engine:
        here = [o.outputs[0].token_ids for o in engine.generate([[1, 2, 3], [4]], params)]
    assert there == here


@pytest.mark.parametrize(
    ("start", "kind", "text"),
    [
        ("config", ConfigError, "cache.block_size is 3; the drill worker needs 4"),
        ("own config", ConfigError, "a kind of ConfigError"),
        ("dependency", MissingDependencyError, "drill[bit]"),
        ("model", UnsupportedModelError, "architecture Scripted"),
        ("defect", ProviderError, "plugin 'drill' raised RuntimeError: the drill broke"),
    ],
)
def test_an_error_at_the_start_arrives_by_class_and_text(
    start: str, kind: type[FrameworkError], text: str
) -> None:
    with pytest.raises(kind) as caught:
        launch_drill(drill_options={"start": start})
    assert text in str(caught.value)
    if isinstance(caught.value, ProviderError):
        assert caught.value.plugin == "drill"


def test_a_provider_whose_module_is_missing_names_its_plugin() -> None:
    with pytest.raises(ProviderError, match="no_such_module") as caught:
        launch_drill(drill_options={}, executor={"worker": "drill-lost"})
    assert caught.value.plugin == "drill"
    assert "drill" in str(caught.value)


def test_a_provider_whose_package_is_missing_names_the_extra() -> None:
    with pytest.raises(MissingDependencyError, match="bit"):
        launch_drill(drill_options={}, executor={"worker": "drill-extra"})


def test_options_are_checked_before_there_is_a_child() -> None:
    with pytest.raises(ConfigError, match="raise_at"):
        launch_drill(drill_options={"raise_at": 3})


def test_a_plugin_that_the_child_can_not_import_is_refused() -> None:
    class Local(EngineHooks):
        PLUGIN = PluginInfo(name="local", api=">=1.0,<2")

    with pytest.raises(PluginLoadError, match="local"):
        framework.launch(config(engine=SEPARATE), plugins=[Local()])


def test_a_module_that_is_there_in_the_parent_only_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was removed after the parent imported it."""
    source = tmp_path / "plugin_of_the_parent.py"
    source.write_text(
        "from hookspecs import EngineHooks, PluginInfo\n"
        "class Mine(EngineHooks):\n"
        "    PLUGIN = PluginInfo(name='mine', api='>=1.0,<2')\n"
        "mine = Mine()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import plugin_of_the_parent  # type: ignore[import-not-found]

    source.unlink()
    with pytest.raises(PluginLoadError, match="plugin_of_the_parent"):
        framework.launch(config(engine=SEPARATE), plugins=[plugin_of_the_parent.mine])
    del sys.modules["plugin_of_the_parent"]


def test_another_version_of_a_plugin_in_the_child_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if the package was upgraded while the parent ran."""
    from framework.plugins import manager

    monkeypatch.setattr(manager, "discover", lambda: [_older(ref) for ref in discover()])
    with pytest.raises(PluginLoadError, match=r"there and 0\.0\.1 here"):
        framework.launch(config(engine=SEPARATE))


def _older(ref: PluginRef) -> PluginRef:
    return msgspec.structs.replace(ref, version="0.0.1")


def test_a_child_that_is_killed_while_it_starts_is_told_from_one_that_fails(
    tmp_path: Path, place: Place
) -> None:
    sign = tmp_path / "sign"

    def kill() -> None:
        until(sign.exists)
        for pid in place.processes():
            os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(EngineDeadError, match="killed by SIGKILL while it started"):
        launch_drill(drill_options={"start": "hang", "sign": str(sign)})
    killer.join()


def test_a_start_that_takes_too_long_ends_with_the_setting_to_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(EngineDeadError, match=r"engine\.start_timeout_s"):
        launch_drill(drill_options={"start": "hang"}, engine={"start_timeout_s": 1.5})
    assert "does not stop" not in caplog.text


def test_an_interrupt_of_the_start_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign = tmp_path / "sign"

    def interrupt() -> None:
        until(sign.exists)
        os.kill(os.getpid(), signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        launch_drill(drill_options={"start": "hang", "sign": str(sign)})
    interrupter.join()


def test_a_cancelled_asynchronous_start_does_not_wait_for_the_model(tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    settings = drill_config(drill={"start": "hang", "sign": str(sign)})

    async def main() -> None:
        start = asyncio.create_task(framework.launch_async(settings, plugins=[drill]).start())
        await asyncio.to_thread(until, sign.exists)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start

    asyncio.run(main())


def test_from_another_thread_than_the_main_one() -> None:
    """The thread that launched ends; the engine lives on."""
    engines: list[Engine] = []
    launcher = threading.Thread(
        target=lambda: engines.append(framework.launch(config(engine=SEPARATE)))
    )
    launcher.start()
    launcher.join()
    with engines[0] as engine:
        params = SamplingParams(max_tokens=3, temperature=0, detokenize=False)
        (output,) = engine.generate([[1, 2]], params)
        assert len(output.outputs[0].token_ids) == 3


def test_what_a_child_prints_is_not_in_the_parents_output() -> None:
    code = (
        "import framework\n"
        "from tests.processes.plugins_for_tests import drill\n"
        "from tests.processes.launches import drill_config\n"
        "settings = drill_config(drill={'start': 'print'}, engine={'process': 'separate'})\n"
        "with framework.launch(settings, plugins=[drill]):\n"
        "    print('mine')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout == "mine\n"
    assert "a library talks" in ran.stderr


def test_modules_in_the_working_directory_do_not_get_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("queue", "random", "framework", "hookspecs"):
        (tmp_path / f"{name}.py").write_text(f"raise RuntimeError('the wrong {name}')\n")
    monkeypatch.chdir(tmp_path)
    with framework.launch(config(engine=SEPARATE)) as engine:
        assert engine.status().num_running == 0
