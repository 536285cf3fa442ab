"""Suite of model loaders, with a small random Llama whose logits the kit computes itself."""

from __future__ import annotations

from framework.conformance.suites.model_loader.description import Description
from framework.conformance.suites.model_loader.forward import Forward
from framework.conformance.suites.model_loader.in_engine import InEngine
from framework.conformance.suites.model_loader.loading import Loading
from framework.conformance.suites.model_loader.rating import Rating

__all__ = ["ModelLoaderConformance"]


# Tests run in the reverse order of the bases.
class ModelLoaderConformance(InEngine, Loading, Rating, Description, Forward):
    """Model loaders make modules whose tokens meet in attention only.

    They are tested with the kit's own model: Llama, in safetensors, without a tokenizer. A loader
    of other files names a model in the settings (`model.name`, and what finds it); its logits are
    then compared with those of each row alone.
    """
