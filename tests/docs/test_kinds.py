"""The pages on plugin kinds and samples are complete, and what they show works."""

from __future__ import annotations

import argparse
import asyncio
import inspect
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

import framework
from framework import SamplingParams
from framework.cli.arguments import split_settings
from framework.config import load_config
from framework.plugins.manager import PluginManager
from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.config import EngineConfig
from hookspecs.contracts.frontend import CliContext, HttpRoutesContext
from hookspecs.contracts.model import ModelInfo, ResolvedModel
from hookspecs.errors import UnsupportedModelError
from hookspecs.kinds import PLUGIN_KINDS
from hookspecs.markers import hook_meta
from tests.docs.guide import ROOT

KINDS = (ROOT / "docs" / "plugins" / "kinds.md").read_text(encoding="utf-8")
SAMPLES = (ROOT / "docs" / "plugins" / "samples.md").read_text(encoding="utf-8")
USED, UNUSED = KINDS.split("\n## Kinds that this version does not use\n")
CONTRACTS = tuple(kind.contract for kind in PLUGIN_KINDS.values())


def example_classes() -> dict[str, type[Any]]:
    """Section to the class that its code block defines; `SECTION 2` to that of a second one."""
    found: dict[str, type[Any]] = {}
    for section in re.split(r"^### ", USED, flags=re.MULTILINE)[1:]:
        for code in re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL):
            names: dict[str, Any] = {}
            exec(compile(code, "kinds.md", "exec"), names)
            kind = section.partition("\n")[0]
            (found[f"{kind} 2" if kind in found else kind],) = [
                value
                for value in names.values()
                if inspect.isclass(value) and issubclass(value, CONTRACTS)
                if value not in CONTRACTS
            ]
    return found


EXAMPLES = example_classes()
globals().update({cls.__name__: cls for cls in EXAMPLES.values()})  # what targets name


class Offers(EngineHooks):
    """What the page shows, as a plugin."""

    PLUGIN = PluginInfo(name="examples-of-the-page", api=">=1.0,<2")

    def _of(self, kind: str) -> Iterator[Provider[Any]]:
        for name, cls in EXAMPLES.items():
            if name.split()[0] == kind:
                yield Provider(
                    name.replace(kind, "example").replace(" ", "-"),
                    f"{__name__}:{cls.__name__}",
                    capabilities=frozenset(getattr(cls, "capabilities", ())),
                )

    @hookimpl
    def register_scheduling_policies(self) -> Iterator[Provider[Any]]:
        return self._of("scheduling_policy")

    @hookimpl
    def register_eviction_policies(self) -> Iterator[Provider[Any]]:
        return self._of("eviction_policy")

    @hookimpl
    def register_tracers(self) -> Iterator[Provider[Any]]:
        return self._of("tracer")

    @hookimpl
    def register_engine_commands(self) -> Iterator[Provider[Any]]:
        return self._of("engine_command")


@pytest.mark.parametrize("kind", PLUGIN_KINDS)
def test_every_kind_has_a_section_or_is_named_as_unused(kind: str) -> None:
    hook = getattr(EngineHooks, PLUGIN_KINDS[kind].hook)
    if hook_meta(hook).tier == "provisional":
        assert f"`{kind}`" in UNUSED
    else:
        assert f"\n### {kind}\n" in USED
        assert f"[`{kind}`](#{kind})" in USED


@pytest.mark.parametrize("kind", EXAMPLES)
def test_an_example_is_a_whole_class_of_its_kind(kind: str) -> None:
    assert issubclass(EXAMPLES[kind], PLUGIN_KINDS[kind.split()[0]].contract)
    assert not inspect.isabstract(EXAMPLES[kind])


def test_the_examples_take_part_in_an_engine(capsys: pytest.CaptureFixture[str]) -> None:
    config = {
        "model": {"name": "scripted"},
        "executor": {"worker": "scripted"},
        "scheduler": {"policies": ["example", "example-2"]},
        "cache": {"eviction": "example", "num_blocks": 12, "block_size": 4},
        "stats": {"loggers": [], "tracers": ["example"]},
        "engine": {"debug": True},
    }
    params = SamplingParams(max_tokens=4, temperature=0, detokenize=False)
    with framework.launch(config, plugins=[Offers()]) as engine:
        outputs = engine.generate([[at] * (at + 3) for at in range(12)], params)
        assert engine.command("example", {}) == {"waiting": 0}
    assert all(len(output.outputs[0].token_ids) == 4 for output in outputs)
    assert capsys.readouterr().out.count(" length ") == 12


def test_the_loader_rates_what_it_loads() -> None:
    info = ModelInfo(architecture="NetForCausalLM", vocab_size=9, max_model_len=9)
    model = ResolvedModel(name="net", path="net", tokenizer_path=None, info=info)
    rate = EXAMPLES["model_loader"].rate
    how = {"dtype": "float32", "device": "cpu", "quantization": None}
    assert rate(model, **how) == 15
    for other in ({"dtype": "bfloat16"}, {"quantization": "int8"}):
        with pytest.raises(UnsupportedModelError, match=r"not in (bfloat16|int8)"):
            rate(model, **(how | other))


def test_the_route_answers() -> None:
    context: Any = HttpRoutesContext(config=EngineConfig(), engine=None)  # type: ignore[arg-type]
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(EXAMPLES["http_routes"](context).asgi()({"type": "http"}, None, send))
    assert [message.get("body") for message in sent] == [None, b"pong"]


def test_the_command_runs(capsys: pytest.CaptureFixture[str]) -> None:
    command = EXAMPLES["cli_command"](CliContext(config=EngineConfig()))
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    assert command.run(parser.parse_args(["33"]), []) == 0
    assert capsys.readouterr().out == "3 blocks\n"


def test_every_sample_has_a_section() -> None:
    folders = {path.parent.name for path in (ROOT / "sample_plugins").glob("*/pyproject.toml")}
    assert folders == set(re.findall(r"^## (\w+)$", SAMPLES, re.MULTILINE))
    assert folders == set(re.findall(r"^\| \[`(\w+)`\]", SAMPLES, re.MULTILINE))


@pytest.mark.parametrize("name", re.findall(r"^## (\w+)$", SAMPLES, re.MULTILINE))
def test_the_files_of_a_sample_are_there(name: str) -> None:
    section = SAMPLES.split(f"\n## {name}\n")[1].partition("\n## ")[0]
    package = ROOT / "sample_plugins" / name
    files = re.findall(r"`((?:tests/)?\w+\.py)`", section)
    assert files
    for file in files:
        assert list(package.glob(file if "/" in file else f"src/*/{file}")), file


@pytest.mark.parametrize("command", re.findall(r"^ *\$ (framework .*)$", SAMPLES, re.MULTILINE))
def test_the_settings_of_a_sample_are_accepted(command: str) -> None:
    settings, _ = split_settings(shlex.split(command)[1:])
    PluginManager.build(load_config(argv=settings, environ={}).config)
