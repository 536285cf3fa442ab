"""The installed plugin in a real server, whose worker emits scripted tokens."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sysconfig
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FRAMEWORK = str(Path(sysconfig.get_path("scripts"), "framework"))
SERVE = [FRAMEWORK, "serve", "scripted", "--executor.worker=scripted", "--serving.port=0"]
CENSUS = "/plugins/cache-census/"


@contextlib.contextmanager
def server(*flags: str) -> Iterator[str]:
    """The address of a server that runs meanwhile."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("FRAMEWORK_")}
    process = subprocess.Popen(
        [*SERVE, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ
    )
    assert process.stdout is not None
    said = []
    try:
        for line in process.stdout:
            said.append(line)
            found = re.search(r"serving .*(http://\S+) ", line)
            if found:
                yield found[1]
                break
        else:
            pytest.fail("".join(said))
    finally:
        process.terminate()
        process.communicate()
    assert process.returncode == 0


def fetch(url: str, body: Any = None) -> tuple[int, Any]:
    """Status and JSON; POST if there is a body."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_the_enabled_plugin_answers_for_the_engine() -> None:
    with server("--plugins.enable=cache-census") as address:
        body = {"model": "scripted", "prompt": [1, 2, 3], "max_tokens": 3}
        assert fetch(f"{address}/v1/completions", body)[0] == 200
        status, census = fetch(f"{address}{CENSUS}?tenant=&limit=5")
        assert status == 200
        (engine,) = census["engines"]
        assert (engine["engine"], engine["running"], engine["requests"]) == (0, 0, [])
        assert engine["blocks_free"] > 0
        assert list(engine["served_tokens"]) == [""]
        assert sum(engine["served_tokens"].values()) > 0
        status, answer = fetch(f"{address}{CENSUS}?limit=1001")
        assert status == 400
        assert "limit" in answer["error"]


def test_without_being_enabled_it_is_not_there() -> None:
    with server() as address:
        assert fetch(address + CENSUS)[0] == 404
