"""Sleep, new weights and profiles."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import numpy as np

from framework.conformance.base import lacking, requires
from framework.conformance.suites.worker.base import (
    WorkerPart,
    a_prompt,
    error_of,
    expect_refused,
    expect_same,
    generated,
)
from framework.conformance.worlds.engines import greedy
from framework.conformance.worlds.tiny_model import HEAD, tiny_weights
from framework.conformance.worlds.workers import Ask, WorkerWorld
from framework.launcher import Engine
from hookspecs.contracts.worker import WorkerCapability
from hookspecs.errors import InvalidRequestError, UnsupportedFeatureError
from hookspecs.types.control import WakeTag
from hookspecs.types.outputs import RequestOutput

__all__ = ["Control"]

NO_WEIGHT = "conformance.no_such_weight"


class Control(WorkerPart):
    """What an operator may do with a worker, where it is declared."""

    @requires(WorkerCapability.SLEEP)
    def test_sleep(self, world: WorkerWorld, seed: int) -> None:
        """Requires sleep.
        Does: puts an engine to sleep at levels 1 and 2, with a request in the middle of its output,
        and wakes it part by part.
        Must: give the same tokens afterwards, to that request too.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        with world.launch() as engine:
            for level in (1, 2, 1):
                stream = _stream(engine, asks[0])
                tokens = [*next(stream).outputs[0].token_ids]
                engine.sleep(level, mode="keep")
                asleep = engine.status().asleep
                for tag in WakeTag:
                    if tag in asleep:
                        engine.wake_up([tag])
                for output in stream:
                    tokens += output.outputs[0].token_ids
                where = f"after a sleep at level {level}"
                expect_same([tokens], alone[:1], asks[:1], where)
                expect_same(generated(engine, asks), alone, asks, where)

    @lacking(WorkerCapability.SLEEP)
    def test_sleep_is_refused(self, world: WorkerWorld) -> None:
        """Requires a worker that does not declare sleep.
        Does: asks an engine to give memory back, then to generate.
        Must: let that be refused, and go on.
        """
        with world.launch() as engine:
            for level in (1, 2):
                expect_refused(lambda level=level: engine.sleep(level))  # type: ignore[misc]
            tokens = generated(engine, [Ask(a_prompt(world), greedy(2))])
            assert len(tokens[0]) == 2, f"after a refused sleep a request got {tokens[0]}"

    @requires(WorkerCapability.UPDATE_WEIGHTS)
    def test_wrong_weights_change_nothing(self, world: WorkerWorld, seed: int) -> None:
        """Requires update_weights.
        Does: gives weights of names that there are not, of a wrong shape, and a path that does not
        exist.
        Must: refuse each with InvalidRequestError, and replace none, nor those that would fit.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        wrong: list[dict[str, Any]] = [
            {"tensors": {NO_WEIGHT: np.zeros(3, np.float32)}},
            {"path": "/conformance/no/such/directory"},
        ]
        if world.is_tiny_model:
            fits = {HEAD: tiny_weights()[HEAD][::-1].copy()}
            wrong.append({"tensors": {**fits, NO_WEIGHT: np.zeros(3, np.float32)}})
            wrong.append({"tensors": {HEAD: np.zeros((3, 3), np.float32)}})
        with world.launch() as engine:
            for arguments in wrong:
                refused = error_of(lambda given=arguments: engine.update_weights(**given))  # type: ignore[misc]
                assert isinstance(refused, InvalidRequestError), (
                    f"update_weights of {_shown(arguments)} gave {refused!r}"
                )
                where = f"after a refused update of {_shown(arguments)}"
                expect_same(generated(engine, asks), alone, asks, where)

    @requires(WorkerCapability.UPDATE_WEIGHTS)
    def test_weights_are_replaced(self, world: WorkerWorld, seed: int) -> None:
        """Requires update_weights, and the kit's tiny model; of another one no weights are known,
        and nothing is tested.
        Does: replaces the lm head, sleeps if it can, and puts the old one back.
        Must: compute with what it was given, also after a sleep at level 1, and with the files' own
        after one at level 2.
        """
        if not world.is_tiny_model:
            return
        asks, alone = world.asks(seed), world.alone(seed)
        with world.launch() as engine:
            head = tiny_weights()[HEAD]
            engine.update_weights(tensors={HEAD: head[::-1].copy()})
            other = generated(engine, asks)
            assert other != alone, "tokens stay as they were after the lm head was replaced"
            if WorkerCapability.SLEEP in world.subject.capabilities:
                engine.sleep(1)
                engine.wake_up()
                expect_same(generated(engine, asks), other, asks, "after a sleep at level 1")
                engine.sleep(2)
                engine.wake_up()
            else:
                engine.update_weights(tensors={HEAD: head})
            expect_same(generated(engine, asks), alone, asks, "with the weights as they were")

    @lacking(WorkerCapability.UPDATE_WEIGHTS)
    def test_new_weights_are_refused(self, world: WorkerWorld) -> None:
        """Requires a worker that does not declare update_weights.
        Does: gives an engine new weights.
        Must: let that be refused.
        """
        with world.launch() as engine:
            weights = {NO_WEIGHT: np.zeros(3, np.float32)}
            refused = error_of(lambda: engine.update_weights(tensors=weights))
            assert isinstance(refused, UnsupportedFeatureError), f"update_weights gave {refused!r}"

    @requires(WorkerCapability.PROFILE)
    def test_a_profile_is_written(self, world: WorkerWorld, seed: int, tmp_path: Path) -> None:
        """Requires profile.
        Does: records some steps, into a directory that is not there yet, twice.
        Must: write a file there each time, name it, and change no token.
        """
        asks, alone = world.asks(seed), world.alone(seed)
        directory = tmp_path / "traces"
        with world.launch() as engine:
            written = []
            for _ in range(2):
                engine.start_profile(str(directory))
                expect_same(generated(engine, asks), alone, asks, "while a profile is recorded")
                written += engine.stop_profile()
        files = [path for path in directory.rglob("*") if path.is_file() and path.stat().st_size]
        assert len(set(written)) == 2, f"two recordings of one worker gave the paths {written}"
        lost = {Path(path).resolve() for path in written} - {path.resolve() for path in files}
        assert not lost, f"stop_profile named {sorted(map(str, lost))}, where nothing was written"

    @lacking(WorkerCapability.PROFILE)
    def test_a_profile_is_refused(self, world: WorkerWorld, tmp_path: Path) -> None:
        """Requires a worker that does not declare profile.
        Does: asks an engine to record.
        Must: let that be refused.
        """
        with world.launch() as engine:
            expect_refused(lambda: engine.start_profile(str(tmp_path)))


def _stream(engine: Engine, ask: Ask) -> Generator[RequestOutput]:
    params = greedy(ask.params.max_tokens or 1)
    return cast("Generator[RequestOutput]", engine.stream(ask.prompt, params))


def _shown(arguments: dict[str, Any]) -> str:
    return (
        ", ".join(
            f"{key} {value if isinstance(value, str) else sorted(value)}"
            for key, value in arguments.items()
        )
        or "nothing"
    )
