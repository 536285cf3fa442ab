"""The boot message, with a child process that really is spawned."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from framework.plugins import Boot, BootReply, PluginManager, compare
from hookspecs import EngineConfig, EngineHooks, PluginInfo, ProcessRole, hookimpl
from hookspecs.config import ModelConfig, PluginsConfig
from hookspecs.errors import ApiVersionError, InternalError, PluginError, PluginLoadError

CORE, WORKER = ProcessRole.CORE, ProcessRole.WORKER

CHILD = """
import sys
from framework.plugins import Boot, PluginManager
from hookspecs.events import CacheReset

boot = Boot.decode(sys.stdin.buffer.read())
manager = PluginManager.from_boot(boot)
manager.calls.on_cache_reset(CacheReset(engine_index=0))
sys.stderr.write(",".join(sorted(name for name in sys.modules if name.startswith("fake_"))))
sys.stdout.buffer.write(manager.reply().encode())
"""

OBSERVER = "@hookimpl\ndef on_cache_reset(self, event): ..."


def spawn(boot: Boot) -> tuple[BootReply, set[str]]:
    """The reply of a fresh interpreter, and which fake modules it imported."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=boot.encode(),
        capture_output=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return BootReply.decode(done.stdout), set(done.stderr.decode().split(",")) - {""}


def roles(*names: str) -> str:
    listed = ", ".join(f"ProcessRole.{name}" for name in names)
    return f"roles=frozenset({{{listed}}})"


ROLE_IMPORT = "from hookspecs import ProcessRole\n"


def test_a_child_imports_exactly_the_plugins_of_its_role(site: Any, build: Any) -> None:
    core = site.plugin("core-one", OBSERVER, top=ROLE_IMPORT, info=roles("CORE"))
    site.plugin("worker-one", top=ROLE_IMPORT, info=roles("WORKER"))
    both = site.plugin("both", version="3.1")
    site.plugin("blocked", top="raise SystemExit('imported')")
    boot = build(block=("blocked",)).boot(CORE)
    reply, imported = spawn(boot)
    assert imported == {core, both}
    assert reply.plugins == {"both": "3.1", "core-one": "1.0"}
    compare(boot, reply)


def test_a_child_can_boot_a_child_of_another_role(site: Any, build: Any) -> None:
    site.plugin("core-one", top=ROLE_IMPORT, info=roles("CORE"))
    site.plugin("worker-one", top=ROLE_IMPORT, info=roles("WORKER"))
    core = PluginManager.from_boot(build().boot(CORE))
    boot = core.boot(WORKER)
    assert [ref.name for ref in boot.expected()] == ["worker-one"]
    assert PluginManager.from_boot(boot).reply().plugins == {"worker-one": "1.0"}


def test_a_process_may_have_two_roles(site: Any, build: Any) -> None:
    site.plugin("core-one", top=ROLE_IMPORT, info=roles("CORE"))
    site.plugin("worker-one", top=ROLE_IMPORT, info=roles("WORKER"))
    site.plugin("front-one", top=ROLE_IMPORT, info=roles("FRONTEND"))
    boot = build().boot(CORE, WORKER)
    assert boot.role is CORE
    assert {ref.name for ref in boot.expected()} == {"core-one", "worker-one"}
    with pytest.raises(InternalError):
        build().boot()


def test_the_message_carries_the_configuration_after_filters(site: Any, build: Any) -> None:
    config = EngineConfig(
        model=ModelConfig(name="m"),
        plugins=PluginsConfig(enable=("x",), options={"x": {"deep": {"list": [1, "a", None]}}}),
    )
    site.plugin(
        "x",
        "@hookimpl\ndef adjust_output(self, event): ...",
        top="import msgspec\nclass O(msgspec.Struct, frozen=True):\n    deep: dict = {}\n",
        info="options=O",
    )
    boot = build(config=config).boot(ProcessRole.FRONTEND)
    assert Boot.decode(boot.encode()) == boot
    child = PluginManager.from_boot(Boot.decode(boot.encode()))
    assert child.config == config and child.calls.has_output_filters
    assert child.roles == (ProcessRole.FRONTEND,)


def test_the_order_is_the_parents(site: Any, build: Any) -> None:
    site.plugin("aa", info="after=('bb',)")
    site.plugin("bb", top=ROLE_IMPORT, info=roles("CORE"))
    manager = build()
    child = PluginManager.from_boot(manager.boot(CORE))
    assert [report.name for report in child.report()] == ["bb", "aa"]


def test_a_plugin_that_fails_in_the_child_stops_it(site: Any, build: Any) -> None:
    module = site.plugin("x")
    boot = build().boot(CORE)
    del sys.modules[module]
    site.modules.remove(module)
    path = site.root / "x-dist" / f"{module}.py"
    path.unlink()
    with pytest.raises(PluginLoadError, match=r"x-dist 1\.0.*in the core process"):
        PluginManager.from_boot(boot)


def reply_to(boot: Boot, **changes: Any) -> BootReply:
    plugins = {ref.name: ref.version for ref in boot.expected()}
    return msgspec.structs.replace(BootReply(roles=boot.roles, plugins=plugins), **changes)


def test_differences_are_refused(site: Any, build: Any) -> None:
    site.plugin("x")
    boot = build().boot(CORE)
    compare(boot, reply_to(boot))
    with pytest.raises(PluginLoadError, match="x is missing"):
        compare(boot, reply_to(boot, plugins={}))
    with pytest.raises(PluginLoadError, match=r"x is 2\.0 there and 1\.0 here"):
        compare(boot, reply_to(boot, plugins={"x": "2.0"}))
    with pytest.raises(PluginLoadError, match="y is there unasked"):
        compare(boot, reply_to(boot, plugins={"x": "1.0", "y": "1.0"}))
    with pytest.raises(PluginLoadError, match="it is worker instead of core"):
        compare(boot, reply_to(boot, roles=(WORKER,)))
    with pytest.raises(ApiVersionError):
        compare(boot, reply_to(boot, api=(9, 0)))


def test_messages_of_another_version_are_refused(site: Any, build: Any) -> None:
    boot = build().boot(CORE)
    with pytest.raises(ApiVersionError, match=r"contract version 9\.9"):
        Boot.decode(msgspec.structs.replace(boot, api=(9, 9)).encode())
    with pytest.raises(PluginError, match="protocol 77"):
        Boot.decode(msgspec.structs.replace(boot, protocol=77).encode())
    # A later version may have another shape altogether.
    with pytest.raises(ApiVersionError):
        Boot.decode(msgspec.msgpack.encode({"api": (9, 9), "protocol": 1, "new": True}))
    with pytest.raises(PluginError, match="can not be read"):
        Boot.decode(b"\xc1")
    with pytest.raises(PluginError, match="can not be read"):
        BootReply.decode(b"\xc1")


def test_options_that_can_not_be_sent_are_refused(build: Any) -> None:
    boot = Boot(
        roles=(CORE,),
        plugins=(),
        config=EngineConfig(plugins=PluginsConfig(options={"x": {"y": object()}})),
    )
    with pytest.raises(PluginError, match="can not be sent to the core process"):
        boot.encode()


def test_a_local_object_at_module_level_is_importable(site: Any, build: Any) -> None:
    module = site.plugin("x", OBSERVER)
    (site.root / "x-dist" / "x_dist-1.0.dist-info" / "entry_points.txt").write_text("")
    plugin = __import__(module).plugin
    boot = build(plugin).boot(CORE)
    reply, imported = spawn(boot)
    assert imported == {module} and reply.plugins == {"x": None}
    compare(boot, reply)


def test_a_local_object_out_of_reach_is_refused_with_a_hint(build: Any) -> None:
    class Local(EngineHooks):
        PLUGIN = PluginInfo(name="lost", api=">=1.0")

        @hookimpl
        def on_cache_reset(self, event: Any) -> None: ...

    manager = build(Local())
    with pytest.raises(PluginLoadError, match=r"<locals>.*__main__") as caught:
        manager.boot(CORE)
    assert caught.value.plugin == "lost"


def test_a_plugin_without_the_role_need_not_be_importable(build: Any) -> None:
    class Local(EngineHooks):
        PLUGIN = PluginInfo(name="here", api=">=1.0", roles=frozenset({ProcessRole.LAUNCHER}))

    assert build(Local()).boot(CORE).expected() == []
