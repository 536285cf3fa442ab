"""Suite of workers, driven by the scheduler through a mini kernel, and in a real engine.

The model is the one that the settings name, in `conform.toml`:

    [settings.model]
    name = "ngram:alice.txt"

Without one it is the first of the kit's own that the worker loads: `scripted`, which has no files,
or a Llama of a few thousand random weights in float32, in the layout of Hugging Face
(`worlds/tiny_model.py`). Of the latter the weights are known, so some tests ask for more there.

Tokens are compared with those of the same worker for the same request alone, in one piece: what
the right ones are is not the kit's to say.
"""

from __future__ import annotations

from framework.conformance.suites.worker.control import Control
from framework.conformance.suites.worker.features import Features
from framework.conformance.suites.worker.life_cycle import LifeCycle
from framework.conformance.suites.worker.results import Results
from framework.conformance.suites.worker.tokens import Tokens

__all__ = ["WorkerConformance"]


# Tests run in the reverse order of the bases.
class WorkerConformance(Features, Control, Results, Tokens, LifeCycle):
    """A worker gives each request the tokens that it would get alone."""
