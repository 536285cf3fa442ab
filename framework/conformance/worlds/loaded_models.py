"""Models as a loader under test makes them, and what their logits must be."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from framework.conformance.subject import Subject
from framework.conformance.worlds.checkpoint import Checkpoint, tiny_checkpoint
from framework.conformance.worlds.dense_attention import DenseAttention
from framework.conformance.worlds.makers import PartMaker
from framework.conformance.worlds.tiny_llama import logits_of
from framework.core.choice import resolve_model
from hookspecs.contracts.model import LoadedModel, ModelLoader, ResolvedModel
from hookspecs.errors import UnsupportedModelError

__all__ = ["Forward", "ModelWorld", "RunningModel"]

Piece = tuple[str, Sequence[int]]
"""Name of a row, and its next tokens."""


class Forward(NamedTuple):
    """What one forward is called with."""

    token_ids: torch.Tensor
    positions: torch.Tensor
    embeds: torch.Tensor | None = None


class RunningModel:
    """A loaded model, whose attention is the kit's: over dense keys and values, in float64."""

    def __init__(self, model: LoadedModel, device: str) -> None:
        self.model = model
        self.attention = DenseAttention()
        model.set_attention(self.attention)
        self._device = device
        self._done: dict[str, int] = {}

    def inputs(self, pieces: Sequence[Piece], *, embeds: bool = False) -> Forward:
        """Of the next forward, whose flattened batch is these pieces of rows. `embeds`: with the
        embeddings of its tokens, in place of which stand others."""
        token_ids = [token for _, tokens in pieces for token in tokens]
        positions: list[int] = []
        for name, tokens in pieces:
            begin = self._done.get(name, 0)
            positions += range(begin, begin + len(tokens))
            self._done[name] = begin + len(tokens)
        self.attention.begin([(name, len(tokens)) for name, tokens in pieces])
        ids = torch.tensor(token_ids, device=self._device)
        given = None
        if embeds:
            given = self.model.embed(ids).clone()
            ids = torch.zeros_like(ids)
        return Forward(ids, torch.tensor(positions, device=self._device), given)

    def rows(self, rows: Sequence[int]) -> torch.Tensor:
        """Numbers of flattened tokens, as `forward` takes them."""
        return torch.tensor(list(rows), dtype=torch.int64, device=self._device)

    @torch.inference_mode()
    def forward(
        self,
        pieces: Sequence[Piece],
        logit_rows: Sequence[int] | None = None,
        *,
        embeds: bool = False,
    ) -> torch.Tensor:
        """Logits on the host; None: of all tokens."""
        inputs = self.inputs(pieces, embeds=embeds)
        wanted = range(len(inputs.token_ids)) if logit_rows is None else logit_rows
        logits = self.model.forward(
            inputs.token_ids, inputs.positions, self.rows(wanted), inputs.embeds
        )
        return logits.cpu().clone()

    @torch.inference_mode()
    def with_hidden(
        self, pieces: Sequence[Piece], logit_rows: Sequence[int], hidden_rows: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits and hidden states on the host."""
        inputs = self.inputs(pieces)
        logits, hidden = self.model.forward_with_hidden(
            inputs.token_ids, inputs.positions, self.rows(logit_rows), self.rows(hidden_rows)
        )
        return logits.cpu().clone(), hidden.cpu().clone()


class ModelWorld:
    """A loader, and the model that it is tested with: the kit's, or one that the settings name.

    What the kit's must give is computed from its weights. Of another one nothing is known but
    that a row in a batch gives what it gives alone.
    """

    def __init__(self, subject: Subject, device: str, seed: int) -> None:
        self.device = device
        self.known: Checkpoint | None = None
        if subject.given.get("model", {}).get("name") is None:
            self.known = tiny_checkpoint()
            self.model = self.known.resolved()
        else:
            self.model = resolve_model(subject.manager(), lambda what, fraction: None)
        self._maker, self._config = PartMaker(subject), subject.config()
        self._random = random.Random(seed)

    @property
    def vocab_size(self) -> int:
        """Width of the logits."""
        return self.model.info.vocab_size

    @property
    def tolerance(self) -> float:
        """Of float32 logits, as a share of the largest: some hundred times what sums of float32
        in two layers are off by; more for models of which the kit does not know the depth."""
        return 1e-4 if self.known else 1e-3

    def tokens(self, count: int) -> list[int]:
        """Random ones, none of them special in the kit's model."""
        return [self._random.randrange(3, self.vocab_size) for _ in range(count)]

    def load(
        self,
        model: ResolvedModel | None = None,
        *,
        dtype: str = "float32",
        progress: Callable[[str, float], None] = lambda what, fraction: None,
    ) -> LoadedModel:
        """Loaded anew, by a new loader."""
        loader: ModelLoader = self._maker("model_loader", self._config, progress=progress)
        try:
            return loader.load(model or self.model, dtype=dtype, device=self.device)
        except UnsupportedModelError as error:
            if model is None and self.known is not None:
                error.add_note(
                    "It is the kit's own model, of safetensors in the layout of Hugging Face. A "
                    "loader of other files is tested with a model that model.name names, in the "
                    "settings of conform.toml."
                )
            raise

    def start(self, model: ResolvedModel | None = None, *, dtype: str = "float32") -> RunningModel:
        """The same, with attention."""
        return RunningModel(self.load(model, dtype=dtype), self.device)

    def expected(self, tokens: Sequence[int]) -> torch.Tensor:
        """float64 [tokens, vocab]: logits of a whole row."""
        if self.known is not None:
            return logits_of(self.known.config, self.known.weights, tokens)[0]
        return self.start().forward([("alone", tokens)]).double()

    def check(self, logits: torch.Tensor, expected: torch.Tensor, what: str) -> None:
        """AssertionError when float32 logits differ from the expected ones."""
        shape = tuple(expected.shape)
        assert tuple(logits.shape) == shape and logits.dtype == torch.float32, (
            f"{what}: logits are {logits.dtype} {tuple(logits.shape)}, not float32 {shape}"
        )
        if not len(expected):
            return
        error = (logits.double() - expected).abs().amax(-1)
        bound = self.tolerance * float(expected.abs().max())
        wrong = torch.nonzero(~(error <= bound)).flatten().tolist()
        assert not wrong, (
            f"{what}: the logits at {wrong[:5]} of {len(error)} are off by up to "
            f"{float(error.max()):.2g}, where rounding explains {bound:.2g}"
        )
