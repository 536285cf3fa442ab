"""Messages of an engine core that can be decoded and are wrong: callers must not wait for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import zmq

from framework.client.asynchronous import AsyncClient
from framework.client.links import EngineLinks
from framework.core.info import EngineInfo
from framework.transport.codec import Encoder
from framework.transport.messages import EngineDead, Heartbeat, MessageKind, encode_message
from framework.transport.runtime_dir import RuntimeDir
from framework.transport.sockets import Sockets
from hookspecs.config import EngineSection
from hookspecs.errors import EngineDeadError
from hookspecs.types.control import EngineState
from hookspecs.types.outputs import EngineCoreOutputs

INFO = EngineInfo(max_model_len=9, cache_tokens=9, num_blocks=9, block_size=4, worker="w")


def outputs(**fields: Any) -> EngineCoreOutputs:
    columns: dict[str, Any] = {
        "handles": np.array([1, 2], np.int64),
        "num_tokens": np.ones(2, np.int32),
        "token_ids": np.array([5, 6], np.int32),
        "finish_codes": np.full(2, -1, np.int8),
        "timestamp": 0.0,
    }
    return EngineCoreOutputs(**{**columns, **fields})


@pytest.fixture
def links() -> Iterator[EngineLinks]:
    runtime_dir = RuntimeDir.create()
    made = EngineLinks(
        client_index=0,
        num_engines=1,
        runtime_dir=runtime_dir,
        settings=EngineSection(),
        curve=None,
    )
    try:
        yield made
    finally:
        made.close()
        runtime_dir.remove()


@pytest.fixture
def engine(links: EngineLinks) -> Iterator[zmq.Socket[bytes]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    sockets = Sockets(context, max_message_bytes=1 << 22)
    yield sockets.connect(zmq.PUSH, links.address.outputs)
    context.destroy(linger=0)


WRONG = {
    "engine index": (MessageKind.OUTPUTS, [outputs(), outputs(engine_index=7)]),
    "negative engine index": (MessageKind.OUTPUTS, [outputs(engine_index=-1)]),
    "codes": (MessageKind.OUTPUTS, [outputs(finish_codes=np.zeros(5, np.int8))]),
    "counts": (MessageKind.OUTPUTS, [outputs(num_tokens=np.ones(1, np.int32)), outputs()]),
    "tokens": (MessageKind.OUTPUTS, [outputs(token_ids=np.empty(0, np.int32))]),
    "heartbeat": (
        MessageKind.HEARTBEAT,
        Heartbeat(engine_index=9, state=EngineState.RUNNING, step=1),
    ),
    "last words": (MessageKind.DEAD, EngineDead(engine_index=9, error_type="E", error="x")),
}


@pytest.mark.parametrize("kind, body", WRONG.values(), ids=WRONG.keys())
def test_whoever_waits_is_told(
    links: EngineLinks, engine: zmq.Socket[bytes], kind: MessageKind, body: Any
) -> None:
    async def main() -> None:
        client = AsyncClient(links, INFO, num_engines=1)
        client.start()
        engine.send_multipart(encode_message(Encoder(), kind, body))
        with pytest.raises(EngineDeadError, match="can not be read"):
            await asyncio.wait_for(client.get_outputs(), 10)
        assert not client.health().live
        client.close()

    asyncio.run(main())


def test_a_death_is_noted_whatever_the_last_message_was(
    links: EngineLinks, engine: zmq.Socket[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(timeout_s: float = 0.0) -> Any:
        raise RuntimeError("no more")

    async def main() -> None:
        client = AsyncClient(links, INFO, num_engines=1)
        client.start()
        monkeypatch.setattr(links, "receive", broken)
        engine.send_multipart(encode_message(Encoder(), MessageKind.OUTPUTS, [outputs()]))
        with pytest.raises(EngineDeadError):
            await asyncio.wait_for(client.get_outputs(), 10)
        client.engine_died(0, "it was killed")
        assert not client.health().live
        client.close()

    asyncio.run(main())
