"""The installed plugin in a real server, whose worker emits scripted tokens."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import sysconfig
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FRAMEWORK = str(Path(sysconfig.get_path("scripts"), "framework"))
SERVE = [FRAMEWORK, "serve", "scripted", "--executor.worker=scripted", "--serving.port=0"]
DASHBOARD = "/plugins/queue-dashboard/"
KEY = {"authorization": "Bearer secret"}


@contextlib.contextmanager
def server(*command: str) -> Iterator[str]:
    """The address of a server that runs meanwhile."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("FRAMEWORK_")}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ
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


def fetch(
    url: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, str, str]:
    """Status, content type and text; POST if there is a body."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        url, data, {"content-type": "application/json", **(headers or {})}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers["content-type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["content-type"], error.read().decode()


def complete(address: str, headers: dict[str, str] | None = None) -> int:
    """The status of a small completion."""
    body = {"model": "scripted", "prompt": [1, 2, 3], "max_tokens": 3}
    return fetch(f"{address}/v1/completions", body, headers)[0]


def test_the_enabled_dashboard_serves_those_with_a_key() -> None:
    enabled = ("--plugins.enable=queue-dashboard", "--serving.api_keys=secret")
    with server(*SERVE, *enabled) as address:
        assert fetch(address + DASHBOARD)[0] == 401
        assert fetch(address + DASHBOARD + "reset-prefix-cache", {})[0] == 401
        assert complete(address, KEY) == 200

        status, kind, page = fetch(address + DASHBOARD, headers=KEY)
        assert (status, kind) == (200, "text/html; charset=utf-8")
        assert "scripted: ready" in page
        assert "<tr><td>length</td><td>1</td></tr>" in page

        status, kind, text = fetch(address + DASHBOARD + "status.json", headers=KEY)
        assert (status, kind) == (200, "application/json")
        shown = json.loads(text)
        assert shown["health"]["ready"]
        assert shown["finished"]["length"] == 1
        assert [engine["state"] for engine in shown["engines"]] == ["running"]
        states = {plugin["name"]: plugin["state"] for plugin in shown["plugins"]}
        assert states["queue-dashboard"] == "active"

        reset = fetch(address + DASHBOARD + "reset-prefix-cache", {}, KEY)
        assert (reset[0], json.loads(reset[2])) == (200, {"result": True})
        assert fetch(address + DASHBOARD + "other", headers=KEY)[0] == 404
        assert fetch(address + DASHBOARD, {}, KEY)[0] == 405


def test_without_being_enabled_it_is_not_there_and_broken_routes_harm_nobody() -> None:
    broken = Path(__file__).with_name("server_with_broken_routes.py")
    with server(sys.executable, str(broken)) as address:
        assert fetch(address + DASHBOARD)[0] == 404
        assert fetch(address + "/plugins/broken-routes/")[0] == 500
        assert fetch(address + "/health")[0] == 200
        assert complete(address) == 200
        assert fetch(address + "/plugins/broken-routes/")[0] == 500
