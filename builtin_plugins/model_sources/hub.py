"""The model source `hub`: repositories of the Hugging Face Hub, named `org/name`."""

from __future__ import annotations

import os

from framework.sdk.model_directory import describe
from framework.sdk.model_directory.hub_download import MODEL_PATTERNS, download, is_hub_name
from hookspecs.contracts.model import ModelSource, ResolvedModel

__all__ = ["HubSource"]


class HubSource(ModelSource):
    """Downloads a repository into the Hub's own cache, then reads it as a directory."""

    def matches(self, name: str) -> bool:
        return is_hub_name(name) and not name.endswith(".gguf") and not os.path.exists(name)

    def resolve(self, name: str, revision: str | None) -> ResolvedModel:
        """Downloads what is not cached yet. Raises as `download` and `describe` do."""
        code = ("*.py",) if self.context.config.model.trust_remote_code else ()
        directory = download(name, revision, (*MODEL_PATTERNS, *code), self.context.progress)
        return describe(self.context, name, directory)
