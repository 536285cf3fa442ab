"""The installed plugin in a real engine, whose worker writes what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from pathlib import Path
from typing import Any, Self, cast

import framework
import msgspec
import pytest
from framework import SamplingParams
from hookspecs import OutputKind, RequestOutput
from hookspecs.contracts.base import PluginContext
from hookspecs.errors import InvalidRequestError, PluginError

from request_guard.options import RequestGuardOptions
from request_guard.plugin import RequestGuardPlugin
from request_guard.redaction import Redaction
from request_guard.streams import Streams

CHARACTERS = " abcdefghijklmnopqrstuvwxyz"
FIRST = 3
"""Token of the first character; before it are those for padding, begin and end."""


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a tokenizer of a token for each character."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = ["<pad>", "<bos>", "<eos>", *CHARACTERS.replace(" ", "_")]
    backend = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, "<pad>"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    backend.decoder = decoders.Sequence([decoders.Replace("_", " "), decoders.Fuse()])
    directory = tmp_path_factory.mktemp("tokenizer")
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>").save_pretrained(directory)
    return directory


def config(model: str = "scripted", *, enabled: bool = True, **options: Any) -> dict[str, Any]:
    return {
        "model": {"name": model},
        "executor": {"worker": "scripted"},
        "engine": {"debug": True},
        "stats": {"loggers": []},
        "plugins": {
            "enable": ["request-guard"] if enabled else [],
            "options": {"request-guard": options},
        },
    }


def saying(text: str, **fields: Any) -> SamplingParams:
    script = {"tokens": [FIRST + CHARACTERS.index(char) for char in text]}
    given = {"max_tokens": 100, "temperature": 0.0, **fields}
    return SamplingParams(extensions={"scripted": script}, **given)


TEXT = "the secretary keeps a secret in a sect"
MASKED = "the [redacted]ary keeps a [redacted] in a sect"


def test_texts_are_masked_in_whole_outputs_and_in_streams(tokenizer: Path) -> None:
    with framework.launch(config(f"scripted:{tokenizer}", redact=["secret"])) as engine:
        (whole,) = engine.generate([[1]], saying(TEXT))
        pieces = list(engine.stream([1], saying(TEXT)))
    assert whole.outputs[0].text == MASKED
    assert "".join(piece.outputs[0].text for piece in pieces) == MASKED
    assert whole.outputs[0].finish_reason == pieces[-1].outputs[0].finish_reason == "stop"


def test_a_server_has_them_masked_in_each_output_that_has_all_so_far(tokenizer: Path) -> None:
    async def texts() -> list[str]:
        settings = config(f"scripted:{tokenizer}", redact=["secret"])
        async with framework.launch_async(settings) as engine:
            params = saying(TEXT, output_kind=OutputKind.CUMULATIVE)
            outputs = engine.generate([1], params, request_id="a")
            return [output.outputs[0].text async for output in outputs]

    found = asyncio.run(texts())
    assert found[-1] == MASKED
    assert all(MASKED.startswith(text) for text in found)


def test_an_installed_plugin_sees_no_content_unless_it_is_enabled(tokenizer: Path) -> None:
    settings = config(f"scripted:{tokenizer}", enabled=False, redact=["secret"], refuse=["ghost"])
    with framework.launch(settings) as engine:
        (output,) = engine.generate([[1]], saying(TEXT), tenant="ghost")
        (report,) = (each for each in engine.plugins() if each.name == "request-guard")
    assert output.outputs[0].text == TEXT
    assert set(report.withheld) == {"adjust_request", "adjust_output"}


def test_limits_are_those_of_the_tenant() -> None:
    params = SamplingParams(max_tokens=9, temperature=0, detokenize=False)
    with framework.launch(config(max_tokens={"acme": 4}, refuse=["ghost"])) as engine:
        lengths = [
            len(output.outputs[0].token_ids)
            for tenant in ("acme", "other")
            for output in engine.generate([[1, 2]], params, tenant=tenant)
        ]
        with pytest.raises(InvalidRequestError, match="rejected: tenant 'ghost' may send no"):
            list(engine.generate([[1, 2]], params, tenant="ghost"))
    assert lengths == [4, 9]


def test_a_limit_beyond_the_model_stops_the_start() -> None:
    settings = config(max_tokens={"acme": 65})
    settings["model"]["max_model_len"] = 64
    with pytest.raises(PluginError, match="lower the one or raise the other"):
        framework.launch(settings)


class WatchedGuard(RequestGuardPlugin):
    """Lets a test look at the streams."""

    PLUGIN = msgspec.structs.replace(RequestGuardPlugin.PLUGIN, name="watched-guard")

    def configured(self, context: PluginContext) -> Self:
        self.options = RequestGuardOptions(redact=("secret",))
        self.streams = Streams(Redaction(self.options.redact))
        return self


def test_nothing_is_kept_of_a_stream_that_its_user_leaves(tokenizer: Path) -> None:
    guard = WatchedGuard()
    settings = config(f"scripted:{tokenizer}", enabled=False)
    with framework.launch(settings, plugins=[guard]) as engine:
        params = saying("secret", output_kind=OutputKind.DELTA)
        stream = cast("Generator[RequestOutput]", engine.stream([1], params))
        while not guard.streams.num_open:
            next(stream)
        stream.close()
        list(engine.generate([[1]], saying("a")))
        assert guard.streams.num_open == 0
