"""Entry point of an engine core process: `python -m framework.core.main FD`."""

from __future__ import annotations

import logging
import queue
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Final

import msgspec
import zmq

from framework.core.core_process import EngineCoreProcess, refusal
from framework.core.engine import EngineCore
from framework.core.heartbeat import HeartbeatThread, LoopProgress
from framework.core.info import EngineInfo, engine_info
from framework.core.input_thread import (
    Abort,
    ExecutorFailed,
    Input,
    InputThread,
    StopRequested,
    ThreadFailed,
)
from framework.core.sender import Sender
from framework.core.setup import build_engine_core
from framework.core.start import CoreStart, engine_identity
from framework.plugins.manager import PluginManager
from framework.plugins.report import call_stats
from framework.process.child import Parent, run_child
from framework.process.exit_codes import ExitCode
from framework.process.garbage import start_spared
from framework.process.openmp import let_compute_threads_sleep
from framework.process.remote_error import error_to_send
from framework.transport.codec import Encoder
from framework.transport.messages import AbortRequests, EngineDead, encode_hello
from framework.transport.runtime_dir import RuntimeDir
from framework.transport.sockets import Sockets
from framework.transport.tensor_ipc import TensorStore
from hookspecs.types.request import FinishReason

__all__ = ["main"]

logger = logging.getLogger("framework.core")
_LINGER_S: Final = 0.5
"""For the last messages. A front end that lives takes them at once, one that is gone never."""


def main() -> int:
    """Returns the exit code."""
    let_compute_threads_sleep()
    return run_child(_run)


def _run(parent: Parent) -> ExitCode:
    start = msgspec.msgpack.decode(parent.start.payload, type=CoreStart)
    plugins = PluginManager.from_boot(parent.boot)
    core, worker, kv_config = build_engine_core(
        plugins,
        start.model,
        report=parent.report,
        progress=parent.progress,
        engine_index=start.engine_index,
        serving=True,
    )
    try:
        info = engine_info(core, worker, kv_config, plugins)
        with start_spared():
            return _serve(parent, start, plugins, core, info)
    except BaseException:
        core.shutdown("start failed")
        raise


def _serve(
    parent: Parent, start: CoreStart, plugins: PluginManager, core: EngineCore, info: EngineInfo
) -> ExitCode:
    config = plugins.config
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    sockets = Sockets(
        context,
        max_message_bytes=config.engine.max_message_bytes,
        keys=start.curve,
        linger_s=_LINGER_S,
    )
    identity = engine_identity(start.engine_index)
    dealers = [
        sockets.connect(zmq.DEALER, address.inputs, identity=identity)
        for address in start.front_ends
    ]
    pushers = [sockets.connect(zmq.PUSH, address.outputs) for address in start.front_ends]
    runtime_dir = RuntimeDir.open(Path(parent.start.runtime_dir))
    tensors = TensorStore(runtime_dir.tensors, prefix=parent.start.name)
    inputs: queue.SimpleQueue[Input] = queue.SimpleQueue()
    progress = LoopProgress(core, lambda: call_stats(plugins.report(), parent.start.name))
    sender = Sender(
        pushers,
        listening=[index for index, each in enumerate(start.front_ends) if each.listens],
        beat=progress.heartbeat,
        encoder=Encoder(tensors, max_bytes=config.engine.max_message_bytes),
        give_up=lambda client, handles: inputs.put(
            Abort(client, AbortRequests(handles=handles, reason=FinishReason.ERROR))
        ),
        failed=lambda error: inputs.put(ThreadFailed(error)),
    )
    heartbeats = HeartbeatThread(sender.sign_of_life, config.engine.heartbeat_timeout_s / 5)
    reader = InputThread(
        context,
        dealers,
        inputs,
        prepare=core.prepare,
        refuse=lambda client, handle, why: sender.outputs(
            client, [refusal(start.engine_index, client, handle, why)]
        ),
        answer=sender.result,
        failed=lambda error: inputs.put(ThreadFailed(error)),
        tensors=tensors,
    )
    _hear_stops(parent, inputs, config.serving.drain_timeout_s)
    core.parts.executor.on_failure(lambda reason: inputs.put(ExecutorFailed(reason)))
    for dealer in dealers:
        dealer.send_multipart(encode_hello(Encoder(), start.engine_index, info))
    heartbeats.start()
    reader.start()
    parent.ready(plugins.reply().encode())
    code = ExitCode.STOPPED
    dead = EngineDead(
        engine_index=start.engine_index, error_type="EngineDeadError", error="it was told to stop"
    )
    try:
        EngineCoreProcess(core, inputs, sender, progress).run()
    except BaseException as error:
        logger.critical("the engine core process ends", exc_info=error)
        code = ExitCode.ENGINE_FAILED
        # What came after the failure may be what was raised.
        cause = core.failure or error
        error_type, text = error_to_send(cause)
        dead = EngineDead(
            engine_index=start.engine_index,
            error_type=error_type,
            error=text,
            plugin=getattr(cause, "plugin", None),
        )
    sender.close(dead)
    heartbeats.close()
    reader.close()
    try:
        core.shutdown(dead.error)
    except Exception:
        logger.exception("the executor could not be shut down")
    context.term()
    return code


def _hear_stops(parent: Parent, inputs: queue.SimpleQueue[Input], drain_s: float) -> None:
    """The parent says how long to drain; at SIGTERM it is the configured time, and at a second
    one requests are aborted."""
    parent.on_stop = lambda stop: inputs.put(StopRequested(stop.drain_s))
    told = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal told
        inputs.put(StopRequested(0.0 if told else drain_s))
        told = True

    signal.signal(signal.SIGTERM, on_signal)


if __name__ == "__main__":
    sys.exit(main())
