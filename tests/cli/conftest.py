"""An installed distribution with plugins, and an engine that answers by a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from framework.plugins.report import PluginReport
from hookspecs.config import EngineConfig
from hookspecs.types.outputs import CompletionOutput, RequestOutput
from hookspecs.types.sampling import SamplingParams

PLUGIN_MODULE = """
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.frontend import CliCommand


class Greet(CliCommand):
    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--name", default="you")

    def run(self, arguments: Namespace, rest: Sequence[str] = ()) -> int:
        print("hello", arguments.name, list(rest), self.context.config.cache.block_size)
        return 7


class GreetPlugin(EngineHooks):
    PLUGIN = PluginInfo(name="greet", api=">=1.0,<2", description="Says hello.")

    @hookimpl
    def register_cli_commands(self):
        yield Provider("{command}", "greet_plugin:Greet", description="say hello, 100 %")


plugin = GreetPlugin()
"""


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of whoever runs the tests."""
    import os

    for name in [name for name in os.environ if name.startswith("FRAMEWORK_")]:
        monkeypatch.delenv(name)


class Installer:
    """Installs a distribution `greet-dist` with the plugin `greet`."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.monkeypatch = monkeypatch

    def install(self, *, command: str = "greet", module: str = PLUGIN_MODULE) -> None:
        """Write metadata and module, and put them on the path."""
        info = self.directory / "greet_dist-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greet-dist\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text("[framework.plugins]\ngreet = greet_plugin:plugin\n")
        (self.directory / "greet_plugin.py").write_text(module.replace("{command}", command))
        self.monkeypatch.syspath_prepend(str(self.directory))
        import sys

        self.monkeypatch.delitem(sys.modules, "greet_plugin", raising=False)


@pytest.fixture
def installer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installer]:
    import sys

    yield Installer(tmp_path, monkeypatch)
    sys.modules.pop("greet_plugin", None)


def output(text: str, *, tokens: int = 2, reason: str | None = "stop") -> RequestOutput:
    """An output of one completion."""
    part = CompletionOutput(index=0, text=text, token_ids=list(range(tokens)), finish_reason=reason)
    return RequestOutput(
        request_id="0",
        prompt=None,
        prompt_token_ids=[1, 2, 3],
        outputs=[part],
        finished=reason is not None,
    )


@dataclass
class FakeEngine:
    """A handle that remembers what it was asked."""

    config: EngineConfig | None = None
    answers: list[list[RequestOutput | Exception]] = field(default_factory=list)
    prompts: list[Any] = field(default_factory=list)
    params: list[SamplingParams] = field(default_factory=list)
    progress: bool | None = None
    closed: int = 0
    aborted: int = 0
    error: Exception | None = None

    def launch(
        self,
        config: EngineConfig,
        *,
        report: Callable[[str], None],
        progress: Callable[[str, float], None],
    ) -> FakeEngine:
        """In place of `framework.launch`."""
        for fraction in (0.0, 0.5, 1.0):
            progress("converting", fraction)
        report("prefix caching is off")
        if self.error is not None:
            raise self.error
        self.config = config
        return self

    def generate(
        self, prompts: Sequence[Any], params: SamplingParams, *, progress: bool = False
    ) -> list[RequestOutput]:
        """An echo of each prompt."""
        self.prompts.extend(prompts)
        self.params.append(params)
        self.progress = progress
        reason = "error" if "fail" in prompts else "stop"
        return [output(f"echo {prompt}", reason=reason) for prompt in prompts]

    def stream(self, prompt: Any, params: SamplingParams) -> Iterator[RequestOutput]:
        """The next scripted answer."""
        self.prompts.append(prompt)
        self.params.append(params)
        finished = False
        try:
            for piece in self.answers.pop(0):
                if isinstance(piece, Exception):
                    raise piece
                yield piece
            finished = True
        finally:
            self.aborted += not finished

    def chat_prompt(self, messages: list[dict[str, Any]]) -> Any:
        """The messages as they are."""
        return messages

    def default_params(self) -> SamplingParams:
        """Of a model whose authors recommend a temperature."""
        return SamplingParams(temperature=0.25)

    def plugins(self) -> list[PluginReport]:
        """None."""
        return []

    def shutdown(self) -> None:
        """Count."""
        self.closed += 1


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()
