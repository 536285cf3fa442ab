"""How well a loader says that it would serve a model, which `model.loader = "auto"` goes by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import torch

from framework.conformance.base import requires
from framework.conformance.subject import Subject, merged
from framework.conformance.suites.model_loader.base import ModelLoaderPart
from framework.conformance.worlds.checkpoint import tiny_checkpoint, write_checkpoint
from framework.conformance.worlds.cost import lines_of
from framework.conformance.worlds.leftovers import Leftovers
from framework.conformance.worlds.loaded_models import ModelWorld
from framework.conformance.worlds.ratings import files_of, rating_of, work_of
from framework.conformance.worlds.tiny_model import EMBEDDING, HEAD
from hookspecs.contracts.model import LoaderCapability, ResolvedModel

__all__ = ["Rating"]

CHEAP_LINES = 20_000
"""Lines of Python that `rate` may execute: looking for a package takes hundreds."""
LARGE_VOCAB = 32_768
"""Of a model whose embeddings take 4 MiB, and its head as many."""
CHEAP_BYTES = 1 << 20
"""That `rate` may hold meanwhile; the configuration of a model has thousands."""
DTYPES = ("float32", "bfloat16", "float16")
METHODS = ("int8", "int4", "fp8", "gguf", "awq", "gptq", "no-such-method")
"""Of quantization, of which a loader may know some."""


class Rating(ModelLoaderPart):
    """What is rated can be loaded, and the question costs nothing."""

    def test_its_rate_is_cheap(
        self, subject: Subject, world: ModelWorld, device: str, tmp_path: Path
    ) -> None:
        """Requires nothing.
        Does: asks how well it would serve a model, and another with megabytes of weights; counts
        lines of Python, bytes and tensors, and looks for files, threads and processes.
        Must: give the same int each time or raise UnsupportedModelError with a reason, at the cost
        of a look at what is installed and at the configuration of the model: no weight is read.
        """
        first = rating_of(subject, world.model, device=device)
        second = rating_of(subject, world.model, device=device)
        assert first == second, f"rate gave {first!r}, then {second!r}"
        model = _large(tmp_path) if world.known is not None else world.model
        leftovers, files = Leftovers(), files_of(model.path)
        work = work_of(lambda: rating_of(subject, model, device=device))
        assert not work.operations, (
            f"rate computes with tensors: {', '.join(sorted(set(work.operations)))}"
        )
        assert world.known is None or work.bytes <= CHEAP_BYTES, (
            f"rate takes {work.bytes} bytes of memory for a model with {2 * LARGE_VOCAB} rows of "
            f"weights; at most {CHEAP_BYTES} are cheap"
        )
        lines = lines_of(lambda: rating_of(subject, model, device=device))
        assert lines <= CHEAP_LINES, f"rate executes {lines} lines; at most {CHEAP_LINES} are cheap"
        changed = set(files) ^ set(files_of(model.path))
        assert not changed, (
            f"rate changes the directory of the model: {sorted({name for name, *_ in changed})}"
        )
        left = leftovers.names()
        assert not left, f"these live on after rate: {', '.join(left)}"

    def test_it_loads_what_it_rates(self, subject: Subject, device: str, seed: int) -> None:
        """Requires nothing.
        Does: loads the model in each type, on each device that is here, which it rates above 0.
        Must: load it; what `load` refuses is rated 0 or less, or refused with a reason.
        """
        for place in _devices(device):
            world = ModelWorld(subject, place, seed)
            for dtype in DTYPES:
                _expect_loaded(subject, world, dtype, None)

    @requires(LoaderCapability.QUANTIZATION)
    def test_it_loads_the_quantizations_that_it_rates(
        self, subject: Subject, device: str, seed: int
    ) -> None:
        """Requires quantization.
        Does: the same with methods of quantization, one of which there is not.
        Must: load what it rates above 0; what `load` refuses is rated 0 or less, or refused with a
        reason.
        """
        for method in METHODS:
            given = merged(subject.given, {"model": {"quantization": method}})
            asking = Subject(subject.plugin, subject.kind.name, subject.provider, given)
            world = ModelWorld(asking, device, seed)
            for dtype in DTYPES:
                _expect_loaded(asking, world, dtype, method)

    def test_whatever_it_is_asked_it_answers(
        self, subject: Subject, world: ModelWorld, device: str, tmp_path: Path
    ) -> None:
        """Requires nothing.
        Does: asks about models without files, with none in their directory, with a configuration
        that is no JSON or lacks all keys, of an architecture that there is not; about a type, a
        device and a method that there are not, and without a device.
        Must: give an int, or raise UnsupportedModelError with a reason, since models of all sorts
        are put to every loader.
        """
        for model in _odd(world.model, tmp_path):
            rating_of(subject, model, device=device)
        odd: list[dict[str, Any]] = [
            {"dtype": "no_such_type", "device": device},
            {"device": "no-such-device"},
            {"device": ""},
            {"device": device, "quantization": "no-such-method"},
        ]
        for asked in odd:
            rating_of(subject, world.model, **asked)


def _expect_loaded(subject: Subject, world: ModelWorld, dtype: str, method: str | None) -> None:
    """AssertionError when a model is rated above 0, but can not be loaded."""
    quantization = method or subject.config().model.quantization
    rating = rating_of(
        subject, world.model, dtype=dtype, device=world.device, quantization=quantization
    )
    if isinstance(rating, str) or rating <= 0:
        return
    try:
        model = world.start(dtype=dtype)
        logits = model.forward([("row", world.tokens(3))])
    except Exception as error:
        raise AssertionError(
            f"rated {rating} as {dtype} on {world.device}, quantization {quantization!r}; but "
            f"loading it there raised {error!r}"
        ) from error
    assert torch.isfinite(logits).all(), f"loaded as {dtype} its logits are not finite"


def _devices(device: str) -> list[str]:
    """That of the tests, the host, and what else torch has here."""
    others = ["cuda"] if torch.cuda.is_available() else []
    return list(dict.fromkeys([device, "cpu", *others]))


def _large(path: Path) -> ResolvedModel:
    """The kit's model with more rows of embeddings, which are zeros."""
    tiny = tiny_checkpoint()
    rows = torch.zeros(LARGE_VOCAB, tiny.weights[HEAD].shape[1])
    weights = tiny.weights | {EMBEDDING: rows, HEAD: rows.clone()}
    return write_checkpoint(path, tiny.config | {"vocab_size": LARGE_VOCAB}, weights).resolved()


def _odd(model: ResolvedModel, path: Path) -> list[ResolvedModel]:
    """Models that a loader can hardly serve."""
    texts = {
        "empty": None,
        "text": "no JSON",
        "list": "[]",
        "keys": "{}",
        "types": '{"architectures": "none", "model_type": 3}',
        "unknown": '{"architectures": ["NoSuchForCausalLM"], "model_type": "no_such"}',
    }
    odd = [msgspec.structs.replace(model, path=None)]
    for name, text in texts.items():
        directory = path / name
        directory.mkdir()
        if text is not None:
            (directory / "config.json").write_text(text, encoding="utf-8")
        odd.append(msgspec.structs.replace(model, name=name, path=str(directory)))
    return [*odd, msgspec.structs.replace(model, path=str(path / "nowhere"))]
