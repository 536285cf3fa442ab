"""Loading, refusing to load, and new weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from framework.conformance.base import lacking, requires
from framework.conformance.subject import Subject
from framework.conformance.suites.model_loader.base import ModelLoaderPart
from framework.conformance.worlds.checkpoint import other_weights, tiny_checkpoint, write_checkpoint
from framework.conformance.worlds.loaded_models import ModelWorld
from framework.conformance.worlds.tiny_llama import logits_of
from hookspecs.contracts.model import LoadedModel, LoaderCapability
from hookspecs.errors import InvalidRequestError, UnsupportedFeatureError, UnsupportedModelError

__all__ = ["Loading"]


class Loading(ModelLoaderPart):
    """What fits is loaded, what does not is refused and changes nothing."""

    # Loading

    def test_loading_twice(self, world: ModelWorld) -> None:
        """Requires nothing.
        Does: loads the model twice and lets both compute by turns.
        Must: make models with equal logits, each with attention of its own.
        """
        first, second = world.start(), world.start()
        tokens = world.tokens(9)
        for begin, end in ((0, 5), (5, 6), (6, 9)):
            one, other = (model.forward([("row", tokens[begin:end])]) for model in (first, second))
            world.check(other, one.double(), "a second load of the model")
        world.check(one, world.expected(tokens)[6:], "two models by turns")

    def test_an_unknown_architecture_is_refused(self, world: ModelWorld, tmp_path: Path) -> None:
        """Requires nothing.
        Does: loads a checkpoint of an architecture that there is not.
        Must: raise UnsupportedModelError, which names it if other checkpoints of that layout are
        taken.
        """
        tiny = tiny_checkpoint()
        config = {**tiny.config, "architectures": ["NoSuchForCausalLM"], "model_type": "no_such"}
        message = _refusal(world, write_checkpoint(tmp_path, config, tiny.weights).resolved())
        assert world.known is None or "NoSuch" in message or "no_such" in message, (
            f"the message does not name the architecture: {message}"
        )

    def test_an_incomplete_checkpoint_is_refused(self, world: ModelWorld, tmp_path: Path) -> None:
        """Requires nothing.
        Does: loads a checkpoint that lacks the head, and one whose file is cut off.
        Must: raise UnsupportedModelError, and make nothing up.
        """
        tiny = tiny_checkpoint()
        weights = {name: tensor for name, tensor in tiny.weights.items() if "lm_head" not in name}
        _refusal(world, write_checkpoint(tmp_path / "head", tiny.config, weights).resolved())
        cut = write_checkpoint(tmp_path / "cut", tiny.config, tiny.weights)
        file = cut.path / "model.safetensors"
        file.write_bytes(file.read_bytes()[:3000])
        _refusal(world, cut.resolved())

    # New weights

    def test_weights_are_replaced(self, world: ModelWorld) -> None:
        """Requires nothing.
        Does: replaces some weights, then all, with tensors of float32, bfloat16 and float64.
        Must: compute with them from then on, and in no other model; or raise
        UnsupportedFeatureError.
        """
        if world.known is None:
            return
        config, weights = world.known.config, dict(world.known.weights)
        untouched, tokens = world.start(), world.tokens(8)
        model = world.start()
        model.forward([("before", tokens)])
        new = other_weights(weights, seed=3)
        some = {name: new[name].bfloat16() for name in list(new)[3:7]}
        every: dict[str, torch.Tensor] = {
            name: tensor.double() if place % 2 else tensor
            for place, (name, tensor) in enumerate(new.items())
        }
        for number, tensors in enumerate((some, every)):
            changed = _replaced(model.model, tensors)
            if changed is None:
                return
            assert changed >= 1, f"update_weights says that {changed} parameters changed"
            weights |= {name: tensor.float() for name, tensor in tensors.items()}
            expected, _ = logits_of(config, weights, tokens)
            logits = model.forward([(f"after {number}", tokens)])
            world.check(logits, expected, f"after {len(tensors)} weights were replaced")
        logits = untouched.forward([("row", tokens)])
        world.check(logits, world.expected(tokens), "another model, not told to replace anything")

    def test_what_does_not_fit_replaces_nothing(self, world: ModelWorld) -> None:
        """Requires nothing.
        Does: replaces weights, of which the last has an unknown name, a wrong shape or type.
        Must: raise InvalidRequestError and leave every weight as it was; or raise
        UnsupportedFeatureError.
        """
        tokens = world.tokens(8)
        model = world.start()
        before = model.forward([("before", tokens)])
        for number, (what, tensors) in enumerate(_misfits(world).items()):
            try:
                if _replaced(model.model, tensors) is None:
                    return
            except InvalidRequestError:
                pass
            else:
                raise AssertionError(f"update_weights took {what}")
            after = model.forward([(f"after {number}", tokens)])
            world.check(after, before.double(), f"after a replacement with {what} was refused")

    # Capabilities

    @lacking(LoaderCapability.QUANTIZATION)
    def test_undeclared_quantization_is_refused(self, subject: Subject) -> None:
        """Requires a loader that does not declare quantization.
        Does: starts an engine with model.quantization.
        Must: be refused with UnsupportedFeatureError.
        """
        _expect_refused(subject, model={"quantization": "int8"})

    @lacking(LoaderCapability.TENSOR_PARALLEL)
    def test_undeclared_tensor_parallel_is_refused(self, subject: Subject) -> None:
        """Requires a loader that does not declare tensor_parallel.
        Does: starts an engine with executor.tensor_parallel_size = 2.
        Must: be refused with UnsupportedFeatureError.
        """
        _expect_refused(subject, executor={"tensor_parallel_size": 2})

    @requires(LoaderCapability.QUANTIZATION)
    def test_an_unknown_quantization_is_refused(
        self, subject: Subject, device: str, seed: int
    ) -> None:
        """Requires quantization.
        Does: loads with a model.quantization that there is not.
        Must: raise UnsupportedModelError that names it.
        """
        given = {**subject.given}
        given["model"] = {**given.get("model", {}), "quantization": "no-such-method"}
        asking = Subject(subject.plugin, subject.kind.name, subject.provider, given)
        message = _refusal(ModelWorld(asking, device, seed), None)
        assert "no-such-method" in message, f"the message does not name the method: {message}"


def _refusal(world: ModelWorld, model: Any) -> str:
    """The message of the UnsupportedModelError."""
    try:
        world.load(model)
    except UnsupportedModelError as error:
        return str(error)
    raise AssertionError("the model was loaded, though it can not be: UnsupportedModelError")


def _expect_refused(subject: Subject, **sections: Any) -> None:
    try:
        engine = subject.launch(**sections)
    except UnsupportedFeatureError:
        return
    engine.shutdown()
    raise AssertionError(f"an engine started with {sections}, which the loader does not declare")


def _replaced(model: LoadedModel, tensors: Mapping[str, torch.Tensor]) -> int | None:
    """How many parameters changed; None if the model replaces no weights."""
    try:
        return model.update_weights(tensors)
    except UnsupportedFeatureError:
        return None


def _misfits(world: ModelWorld) -> dict[str, dict[str, torch.Tensor]]:
    """By what is wrong."""
    unknown = {"an unknown name": {"no.such.weight": torch.ones(2, 2)}}
    if world.known is None:
        return unknown
    new = other_weights(world.known.weights, seed=3)
    good, other = dict(list(new.items())[:3]), list(new)[4]
    wrong = {
        "an unknown name": {"no.such.weight": torch.ones(2, 2)},
        "a wrong shape": {other: new[other][:-1]},
        "a type of integers": {other: torch.ones(new[other].shape, dtype=torch.int32)},
    }
    return {what: good | tensors for what, tensors in wrong.items()}
