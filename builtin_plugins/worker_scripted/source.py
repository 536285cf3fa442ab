"""The model source `scripted`: a model without files."""

from __future__ import annotations

from pathlib import Path

from builtin_plugins.worker_scripted.options import ScriptedOptions
from builtin_plugins.worker_scripted.pooling import HIDDEN_SIZE
from framework.sdk.model_directory.regular_file import check_files
from hookspecs.contracts.model import ModelInfo, ModelSource, ResolvedModel
from hookspecs.errors import ModelNotFoundError

__all__ = ["ScriptedSource"]

_NAME = "scripted"
_PREFIX = f"{_NAME}:"


class ScriptedSource(ModelSource):
    """`scripted`, or `scripted:DIR` with a directory that holds a tokenizer.

    `model.tokenizer` takes the place of DIR; `none` means none. The tokenizer's ids must be
    below the option vocab_size.
    """

    def matches(self, name: str) -> bool:
        return name == _NAME or name.startswith(_PREFIX)

    def resolve(self, name: str, revision: str | None) -> ResolvedModel:
        if revision is not None:
            raise ModelNotFoundError(
                f"model {name!r} has no revisions, but model.revision is {revision!r}. Remove it."
            )
        options = self.context.options
        assert isinstance(options, ScriptedOptions)
        directory = self.context.config.model.tokenizer
        if directory is None and name.startswith(_PREFIX):
            directory = name.removeprefix(_PREFIX)
        if directory == "none":
            directory = None
        if directory is not None:
            directory = str(Path(directory).expanduser())
        if directory is not None and not Path(directory).is_dir():
            raise ModelNotFoundError(
                f"model {name!r}: the tokenizer {directory!r} is no existing directory. Give a "
                "directory with tokenizer.json, or none."
            )
        if directory is not None:
            check_files(Path(directory))
        return ResolvedModel(
            name=name,
            path=None,
            tokenizer_path=directory,
            info=ModelInfo(
                architecture="Scripted",
                vocab_size=options.vocab_size,
                max_model_len=options.max_model_len,
                eos_token_ids=(options.eos_token_id,),
                hidden_size=HIDDEN_SIZE,
                has_tokenizer=directory is not None,
            ),
        )
