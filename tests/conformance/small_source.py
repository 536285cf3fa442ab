"""A plugin with a model source whose models have few tokens, as an author may have."""

from __future__ import annotations

from collections.abc import Iterable

from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.model import ModelInfo, ModelSource, ResolvedModel
from hookspecs.errors import ModelNotFoundError

__all__ = ["END", "SMALL", "VOCAB_SIZE"]

VOCAB_SIZE = 11
END = 7


class SmallSource(ModelSource):
    """Knows `small:one`."""

    def matches(self, name: str) -> bool:
        return name.startswith("small:") and name.count(":") == 1

    def resolve(self, name: str, revision: str | None) -> ResolvedModel:
        if name != "small:one" or revision is not None:
            raise ModelNotFoundError(f"there is no model {name!r} at the revision {revision!r}")
        info = ModelInfo(
            architecture="Small",
            vocab_size=VOCAB_SIZE,
            max_model_len=64,
            eos_token_ids=(END,),
            has_tokenizer=False,
        )
        return ResolvedModel(name=name, path=None, tokenizer_path=None, info=info)


class SmallPlugin(EngineHooks):
    """Can be imported by other processes."""

    PLUGIN = PluginInfo(name="small", api=">=1.0,<2")

    @hookimpl
    def register_model_sources(self) -> Iterable[Provider[ModelSource]]:
        """The provider `small`."""
        yield Provider("small", f"{__name__}:SmallSource")


SMALL = SmallPlugin()
