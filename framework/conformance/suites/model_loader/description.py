"""What a loaded model says of itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import torch

from framework.conformance.suites.model_loader.base import ModelLoaderPart
from framework.conformance.worlds.checkpoint import tiny_checkpoint
from framework.conformance.worlds.loaded_models import ModelWorld, RunningModel
from framework.conformance.worlds.tiny_llama import logits_of
from hookspecs.contracts.attention import AttentionCapability
from hookspecs.errors import UnsupportedModelError

__all__ = ["Description"]

TOLERANCES = {"bfloat16": 0.25, "float16": 0.02}
"""Of logits in the shorter types, as a share of the largest: three times what rounding is seen to
do to the kit's model."""


class Description(ModelLoaderPart):
    """Layers, types, features and progress are as they are told."""

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
        float32 and, if the loader takes it, in bfloat16.
        Must: state layers, heads and sizes, and count every parameter once.
        """
        sizes = {}
        for dtype in ("float32", "bfloat16"):
            try:
                model = world.load(dtype=dtype)
            except UnsupportedModelError:
                if dtype == "float32":
                    raise
                continue
            sizes[dtype] = model.weight_bytes
            assert sizes[dtype] > 0, f"weight_bytes is {sizes[dtype]} in {dtype}"
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
            assert low <= sizes[dtype] <= low * 1.1, (
                f"weight_bytes is {sizes[dtype]} of {numbers} parameters of {dtype}"
            )
        short = sizes.get("bfloat16", 0)
        assert short < sizes["float32"], f"weight_bytes by type is {sizes}"

    def test_the_type_is_honoured(self, world: ModelWorld) -> None:
        """Requires nothing.
        Does: loads as bfloat16 and float16, and computes.
        Must: give attention tensors of that type, say so, and still give float32 logits, those of
        the model up to the rounding of the type; or raise UnsupportedModelError that names the
        type, and load as no other one.
        """
        tokens = world.tokens(6)
        for dtype, feature in (
            ("bfloat16", AttentionCapability.BFLOAT16),
            ("float16", AttentionCapability.FLOAT16),
        ):
            try:
                model = world.start(dtype=dtype)
            except UnsupportedModelError as error:
                assert dtype in str(error), f"{dtype} was refused without being named: {error}"
                continue
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
            if world.known is not None:
                expected = world.expected(tokens)
                off = float((logits.double() - expected).abs().max() / expected.abs().max())
                assert off <= TOLERANCES[dtype], (
                    f"loaded as {dtype} its logits are off by {off:.2g} of the largest, where "
                    f"rounding explains {TOLERANCES[dtype]}"
                )

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
