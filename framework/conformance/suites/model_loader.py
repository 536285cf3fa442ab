"""Suite of model loaders, with a small random Llama whose logits the kit computes itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from framework.conformance.base import lacking, requires
from framework.conformance.subject import Subject
from framework.conformance.worlds.checkpoint import (
    other_weights,
    tiny_checkpoint,
    write_checkpoint,
)
from framework.conformance.worlds.engines import greedy
from framework.conformance.worlds.loaded_models import ModelWorld, RunningModel
from framework.conformance.worlds.tensors import TensorConformance
from framework.conformance.worlds.tiny_llama import logits_of
from hookspecs.contracts.attention import AttentionCapability
from hookspecs.contracts.model import LoadedModel, LoaderCapability
from hookspecs.errors import InvalidRequestError, UnsupportedFeatureError, UnsupportedModelError

__all__ = ["ModelLoaderConformance"]

LOGIT_MARGIN = 1e-3
"""How much less likely than the best a greedy token may be, as a share of the largest logit."""


class ModelLoaderConformance(TensorConformance):
    """Model loaders make modules whose tokens meet in attention only.

    They are tested with the kit's own model: Llama, in safetensors, without a tokenizer. A loader
    of other files names a model in the settings (`model.name`, and what finds it); its logits are
    then compared with those of each row alone.
    """

    kind = "model_loader"

    @pytest.fixture
    def world(self, subject: Subject, device: str, seed: int) -> ModelWorld:
        """The loader, and the model to load."""
        return ModelWorld(subject, device, seed)

    # Forward

    def test_a_flattened_batch(self, world: ModelWorld) -> None:
        """Requires nothing.
        Does: computes rows of 1 to 9 tokens in one forward, and each alone.
        Must: give each row the logits of the model.
        """
        model = world.start()
        rows = {f"r{length}": world.tokens(length) for length in (5, 1, 9, 2)}
        expected = torch.cat([world.expected(tokens) for tokens in rows.values()])
        world.check(model.forward(list(rows.items())), expected, "a batch of four rows")

    def test_chunks_and_decodes(self, world: ModelWorld) -> None:
        """Requires nothing.
        Does: computes rows in chunks and token by token, beside rows at other positions.
        Must: use the positions that are given, whatever the place in the batch.
        """
        model = world.start()
        rows = {name: world.tokens(12) for name in "ab"}
        expected = {name: world.expected(tokens) for name, tokens in rows.items()}
        done = dict.fromkeys(rows, 0)
        for counts in ({"a": 5}, {"b": 3, "a": 1}, {"a": 1, "b": 7}, {"b": 1, "a": 5}):
            pieces = [(name, rows[name][done[name] : done[name] + n]) for name, n in counts.items()]
            wanted = [expected[name][done[name] : done[name] + n] for name, n in counts.items()]
            for name, count in counts.items():
                done[name] += count
            world.check(model.forward(pieces), torch.cat(wanted), f"a step of {counts}")

    def test_logits_in_the_order_asked(self, world: ModelWorld) -> None:
        """Requires nothing.
        Does: asks for the logits of all tokens, of some in another order, of one, of none.
        Must: give one row of logits for each element of `logit_rows`, in that order.
        """
        tokens = world.tokens(7)
        expected = world.expected(tokens)
        for asked in ([5, 1, 6, 2], [3], [6, 5, 4, 3, 2, 1, 0], []):
            logits = world.start().forward([("row", tokens)], asked)
            world.check(logits, expected[asked], f"logit_rows {asked}")

    def test_embeds_replace_tokens(self, world: ModelWorld) -> None:
        """Requires nothing.
        Does: computes with the result of `embed` and other token ids.
        Must: give [tokens, hidden size] in `embed`, and in `forward` use these alone.
        """
        tokens = world.tokens(8)
        model = world.start()
        embedded = model.model.embed(torch.tensor(tokens, device=world.device))
        wanted = (8, world.model.info.hidden_size)
        assert tuple(embedded.shape) == wanted, f"embed gave {tuple(embedded.shape)}, not {wanted}"
        logits = model.forward([("row", tokens)], embeds=True)
        world.check(logits, world.expected(tokens), "embeddings in place of tokens")

    def test_hidden_states(self, world: ModelWorld) -> None:
        """Requires nothing.
        Does: asks for logits and hidden states of different tokens of a batch.
        Must: give the logits of `forward`, and the states after the final norm, float32, in the
        order asked; or raise UnsupportedFeatureError, after which `forward` works.
        """
        first, second = world.tokens(5), world.tokens(4)
        logit_rows, hidden_rows = [8, 4], [6, 0, 3, 8]
        model = world.start()
        expected = torch.cat([world.expected(first), world.expected(second)])[logit_rows]
        try:
            logits, hidden = model.with_hidden(
                [("a", first), ("b", second)], logit_rows, hidden_rows
            )
        except UnsupportedFeatureError:
            logits = model.forward([("c", first), ("d", second)], logit_rows)
            world.check(logits, expected, "forward after forward_with_hidden was refused")
            return
        world.check(logits, expected, "logits beside hidden states")
        wanted = (len(hidden_rows), world.model.info.hidden_size)
        assert tuple(hidden.shape) == wanted and hidden.dtype == torch.float32, (
            f"hidden states are {hidden.dtype} {tuple(hidden.shape)}, not float32 {wanted}"
        )
        if world.known is not None:
            known = [
                logits_of(world.known.config, world.known.weights, tokens)[1]
                for tokens in (first, second)
            ]
            states = torch.cat(known)[hidden_rows]
            error = float((hidden.double() - states).abs().max())
            assert error <= world.tolerance * float(states.abs().max()), (
                f"hidden states are off by {error:.2g}: those after the final norm were asked for, "
                f"of the tokens {hidden_rows}"
            )

    def test_arguments_are_left_alone(self, world: ModelWorld) -> None:
        """Requires nothing.
        Does: compares token ids, positions, rows and embeddings before and after a forward.
        Must: change none of them.
        """
        model = world.start()
        inputs = model.inputs([("row", world.tokens(6))], embeds=True)
        tensors = {**inputs._asdict(), "logit_rows": model.rows([2, 0])}
        before = {name: tensor.clone() for name, tensor in tensors.items()}
        with torch.inference_mode():
            model.model.forward(**tensors)
        for name, tensor in tensors.items():
            assert torch.equal(tensor, before[name]), f"forward changed {name}"

    # What it says of itself

    def test_attention_is_called_once_a_layer(self, world: ModelWorld) -> None:
        """Requires nothing.
        Does: records the calls of attention in a forward.
        Must: call it for each of `layer_specs`, in order, with the heads, sizes, type and window
        that these state, and the tokens of the batch.
        """
        model = world.start()
        model.forward([("a", world.tokens(4)), ("b", world.tokens(3))])
        calls, specs = model.attention.calls, model.model.layer_specs
        layers = [call.layer for call in calls]
        assert layers == [spec.layer for spec in specs], (
            f"attention was called for the layers {layers}; layer_specs has "
            f"{[spec.layer for spec in specs]}"
        )
        for call, spec in zip(calls, specs, strict=True):
            shape = (7, spec.num_kv_heads, spec.head_size)
            for name, tensor in (("key", call.key), ("value", call.value)):
                assert tuple(tensor.shape) == shape, (
                    f"layer {spec.layer}: {name} is {tuple(tensor.shape)}, layer_specs say {shape}"
                )
                dtype = str(tensor.dtype).removeprefix("torch.")
                assert (dtype, tensor.dtype.itemsize) == (spec.dtype, spec.itemsize), (
                    f"layer {spec.layer}: {name} is of {dtype}, layer_specs say {spec.dtype} of "
                    f"{spec.itemsize} bytes"
                )
            heads = call.query.shape[1]
            assert call.query.shape[::2] == shape[::2] and heads % spec.num_kv_heads == 0, (
                f"layer {spec.layer}: query is {tuple(call.query.shape)}, key {shape}"
            )
            window = call.how["sliding_window"]
            assert window == spec.sliding_window, (
                f"layer {spec.layer}: window {window}, layer_specs say {spec.sliding_window}"
            )

    def test_what_it_says_of_the_model(self, world: ModelWorld) -> None:
        """Requires nothing.
        Does: compares layer_specs and weight_bytes with the model's configuration and weights, in
        two types.
        Must: state layers, heads and sizes, and count every parameter once.
        """
        sizes = []
        for dtype in ("float32", "bfloat16"):
            model = world.load(dtype=dtype)
            sizes.append(model.weight_bytes)
            if world.known is None:
                continue
            config = world.known.config
            specs = [(spec.layer, spec.num_kv_heads, spec.head_size) for spec in model.layer_specs]
            heads = (config["num_key_value_heads"], config["head_dim"])
            expected = [(layer, *heads) for layer in range(config["num_hidden_layers"])]
            assert specs == expected, f"layer_specs are {specs}; the model has {expected}"
            numbers = sum(tensor.numel() for tensor in world.known.weights.values())
            low = numbers * getattr(torch, dtype).itemsize
            # Buffers may come on top, such as the frequencies of rotary embeddings.
            assert low <= sizes[-1] <= low * 1.1, (
                f"weight_bytes is {sizes[-1]} of {numbers} parameters of {dtype}"
            )
        assert 0 < sizes[1] < sizes[0], f"weight_bytes of float32 and bfloat16 are {sizes}"

    def test_the_type_is_honoured(self, world: ModelWorld) -> None:
        """Requires nothing.
        Does: loads as bfloat16 and float16, and computes.
        Must: give attention tensors of that type, say so, and still give float32 logits.
        """
        tokens = world.tokens(6)
        for dtype, feature in (
            ("bfloat16", AttentionCapability.BFLOAT16),
            ("float16", AttentionCapability.FLOAT16),
        ):
            model = world.start(dtype=dtype)
            logits = model.forward([("row", tokens)])
            stated = {spec.dtype for spec in model.model.layer_specs}
            assert stated == {dtype}, f"loaded as {dtype}, layer_specs say {stated}"
            given = {str(c.key.dtype).removeprefix("torch.") for c in model.attention.calls}
            assert given == {dtype}, f"loaded as {dtype}, attention is called with {given}"
            assert feature in model.model.attention_features, (
                f"attention is called with {dtype}, but attention_features lack {feature}: "
                f"{sorted(model.model.attention_features)}"
            )
            assert logits.dtype == torch.float32, f"logits are of {logits.dtype}, not float32"
            assert torch.isfinite(logits).all(), f"loaded as {dtype} its logits are not finite"

    def test_features_are_those_it_uses(self, world: ModelWorld) -> None:
        """Requires nothing.
        Does: compares attention_features with what attention is called with.
        Must: name the capabilities that it needs, and only such as there are.
        """
        model = world.start()
        model.forward([("row", world.tokens(3))])
        features = model.model.attention_features
        unknown = features - set(AttentionCapability)
        assert not unknown, f"attention_features name {sorted(unknown)}, which there is not"
        _expect_features(model)
        if world.known is not None:
            assert not features, f"a Llama of float32 needs nothing, but names {sorted(features)}"

    def test_a_sliding_window(self, world: ModelWorld) -> None:
        """Requires nothing.
        Does: loads a Mistral, whose layers see seven tokens, if the loader takes it.
        Must: state the window, pass it on, and give that model's logits.
        """
        if world.known is None:
            return
        sliding = tiny_checkpoint(sliding=True)
        try:
            model = world.start(sliding.resolved())
        except UnsupportedModelError:
            return
        window = sliding.config["sliding_window"]
        tokens = world.tokens(20)
        logits = model.forward([("row", tokens)])
        windows = {call.how["sliding_window"] for call in model.attention.calls}
        windows |= {spec.sliding_window for spec in model.model.layer_specs}
        assert windows == {window}, f"the window is {window}; stated or passed on are {windows}"
        _expect_features(model)
        expected, _ = logits_of(sliding.config, sliding.weights, tokens)
        world.check(logits, expected, f"a window of {window}")

    def test_progress(self, world: ModelWorld) -> None:
        """Requires nothing.
        Does: records the calls of `progress` while a model is loaded.
        Must: call it, if at all, with a text and a number from 0 to 1 that does not fall.
        """
        told: dict[str, list[float]] = defaultdict(list)
        world.load(progress=lambda what, fraction: told[what].append(fraction))
        for what, fractions in told.items():
            assert isinstance(what, str) and what, f"progress of {what!r}, which is no text"
            outside = [fraction for fraction in fractions if not 0 <= fraction <= 1]
            assert not outside, f"progress of {what!r} is {outside[0]}; it goes from 0 to 1"
            assert fractions == sorted(fractions), f"progress of {what!r} falls: {fractions}"

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

    # In an engine

    def test_tokens_of_an_engine(self, subject: Subject, world: ModelWorld) -> None:
        """Requires nothing.
        Does: generates in a real engine, with chunks and a cache that is too small.
        Must: lead to the tokens that are most likely by the model's logits.
        """
        worker = subject.given.get("executor", {}).get("worker", "cpu")
        prompts = [world.tokens(length) for length in (1, 9, 21, 4)]
        with subject.launch(
            model={"name": world.model.name, "tokenizer": "none", "dtype": "float32"},
            executor={"worker": worker},
            cache={"num_blocks": 100 // subject.config().cache.block_size},
        ) as engine:
            outputs = list(engine.generate(prompts, greedy(8)))
        for prompt, output in zip(prompts, outputs, strict=True):
            tokens = output.outputs[0].token_ids
            assert len(tokens) == 8, f"{len(tokens)} tokens: {output.outputs[0].error}"
            logits = world.expected([*prompt, *tokens])[len(prompt) - 1 : -1]
            chosen = logits.gather(1, torch.tensor(tokens)[:, None])[:, 0]
            worst = float((logits.amax(-1) - chosen).max())
            assert worst <= LOGIT_MARGIN * float(logits.abs().max()), (
                f"of the tokens {tokens} one has a logit that is {worst:.3g} below the best"
            )


def _expect_features(model: RunningModel) -> None:
    used: dict[str, Callable[[Mapping[str, Any]], bool]] = {
        AttentionCapability.SLIDING_WINDOW: lambda how: how["sliding_window"] is not None,
        AttentionCapability.SOFT_CAP: lambda how: how["soft_cap"] is not None,
        AttentionCapability.SINKS: lambda how: how["sinks"] is not None,
    }
    for call in model.attention.calls:
        for feature, uses in used.items():
            assert not uses(call.how) or feature in model.model.attention_features, (
                f"layer {call.layer} uses {feature}, but attention_features lack it: "
                f"{sorted(model.model.attention_features)}"
            )


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
