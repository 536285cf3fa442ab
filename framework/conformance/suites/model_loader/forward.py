"""The forward of a loaded model."""

from __future__ import annotations

import torch

from framework.conformance.suites.model_loader.base import ModelLoaderPart
from framework.conformance.worlds.loaded_models import ModelWorld
from framework.conformance.worlds.tiny_llama import logits_of
from hookspecs.errors import UnsupportedFeatureError

__all__ = ["Forward"]


class Forward(ModelLoaderPart):
    """A forward gives the logits and hidden states of its checkpoint."""

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
