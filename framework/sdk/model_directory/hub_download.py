"""Downloads files of a repository of the Hugging Face Hub; maps its errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from hookspecs.errors import ModelNotFoundError

__all__ = ["MODEL_PATTERNS", "TOKENIZER_PATTERNS", "download", "is_hub_name"]

TOKENIZER_PATTERNS = (
    "*.json",
    "*.jinja",
    "*.tiktoken",
    "tokenizer.model",
    "merges.txt",
    "vocab.txt",
)
MODEL_PATTERNS = (*TOKENIZER_PATTERNS, "*.safetensors")

_IGNORED = ("*/*", "consolidated*.safetensors")
"""Files in subdirectories, and the same weights once more under the names of another layout."""
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]*\w")


def is_hub_name(name: str) -> bool:
    """Whether `name` has the form `org/name`."""
    return _NAME.fullmatch(name) is not None


def download(
    name: str,
    revision: str | None,
    patterns: Sequence[str],
    progress: Callable[[str, float], None],
) -> Path:
    """The local directory with the files of `name` that match `patterns`; uses the Hub's cache.

    Files in subdirectories and second copies of the weights are left out. Raises
    ModelNotFoundError when the repository or revision does not exist, needs a permission, or can
    not be reached and is not in the cache.
    """
    import huggingface_hub
    from huggingface_hub import errors

    progress(f"downloading {name}", 0.0)
    try:
        path = huggingface_hub.snapshot_download(
            name, revision=revision, allow_patterns=list(patterns), ignore_patterns=list(_IGNORED)
        )
    except errors.GatedRepoError as error:
        raise _failure(
            name,
            revision,
            "access to it is restricted",
            "Accept its terms on the page of the model and log in with: hf auth login",
        ) from error
    except errors.RevisionNotFoundError as error:
        raise _failure(
            name,
            revision,
            "the repository has no such revision",
            "Give an existing branch, tag or commit as model.revision, or leave it out.",
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise _failure(
            name,
            revision,
            "there is no such repository, or it is private",
            "Check the spelling; for a private repository log in with: hf auth login",
        ) from error
    except Exception as error:
        raise _failure(
            name,
            revision,
            f"the download failed ({type(error).__name__}: {error}), and the local cache does not "
            "hold it",
            "Check the network connection (and HF_HUB_OFFLINE, which forbids it), or give a local "
            "directory as the model.",
        ) from error
    progress(f"downloading {name}", 1.0)
    return Path(path)


def _failure(name: str, revision: str | None, what: str, advice: str) -> ModelNotFoundError:
    at = f" at revision {revision!r}" if revision is not None else ""
    return ModelNotFoundError(
        f"{name!r}{at} could not be taken from the Hugging Face Hub: {what}. {advice} "
        f"(No local directory of the name {name!r} exists either.)"
    )
