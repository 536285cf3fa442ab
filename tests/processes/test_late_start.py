"""What goes wrong late in a start leaves nothing behind, and is told by its own error."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import framework
from framework.launcher.host import EngineHost
from framework.process.supervisor import StartUp
from hookspecs.errors import ProviderError
from tests.processes.launches import Place, config, until
from tests.processes.programs import server


def test_a_start_that_is_cancelled_when_the_core_is_ready(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place.path))
    reached, go_on = threading.Event(), threading.Event()
    wait_ready = EngineHost.wait_ready

    def hold(self: EngineHost, shown: StartUp) -> None:
        wait_ready(self, shown)
        place.look()
        reached.set()
        assert go_on.wait(60)

    monkeypatch.setattr(EngineHost, "wait_ready", hold)
    # Given up meanwhile: the thread is past every point where it would be noticed.
    monkeypatch.setattr(EngineHost, "give_up", lambda self: go_on.set())

    async def main() -> None:
        start = asyncio.create_task(framework.launch_async(config()).start())
        await asyncio.to_thread(reached.wait, 60)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start

    asyncio.run(main())
    until(place.is_clean)


def test_a_front_end_that_can_not_start_is_told_before_the_model_is_loaded(
    place: Place, tmp_path: Path
) -> None:
    """The core hangs in its start here: only the front ends can end this."""
    settings: dict[str, Any] = config(
        serving={"processes": 2, "stat_loggers": ["json_lines"]},
        executor={"worker": "drill"},
        engine={"start_timeout_s": 600},
    )
    sign = tmp_path / "sign"
    settings["plugins"] = {
        "options": {
            "json_lines": {"path": str(tmp_path / "no such directory" / "x.jsonl")},
            "drill": {"start": "hang", "sign": str(sign)},
        }
    }
    with server(place, settings) as program:
        assert program.exit_code() not in (0, None)
        assert "json_lines" in program.log() and ProviderError.__name__ in program.log()
