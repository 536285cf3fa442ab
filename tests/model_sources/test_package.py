"""The source `package`: models inside of installed packages, found without an import."""

from __future__ import annotations

import shutil
import sys

import pytest

from builtin_plugins.model_sources.package import PackageSource
from hookspecs.errors import ModelNotFoundError


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The directory of an importable package whose import fails."""
    directory = tmp_path / "site" / "model_package"
    directory.mkdir(parents=True)
    (directory / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(directory.parent))
    return directory


def test_a_directory_in_a_package(make_context, package, checkpoint):
    shutil.copytree(checkpoint(), package / "data" / "model")
    model = PackageSource(make_context()).resolve("package:model_package", None)
    assert model.name == "package:model_package"
    assert model.path == str(package / "data" / "model")
    assert "model_package" not in sys.modules


def test_a_gguf_file_of_a_distribution(make_context, package, tiny, cache):
    tiny.write(package / "tiny.gguf")
    information = package.parent / "model_distribution-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Name: model-distribution\nVersion: 1\n")
    (information / "RECORD").write_text("model_package/__init__.py,,\n")
    model = PackageSource(make_context()).resolve("package:model-distribution", None)
    assert model.name == "package:model-distribution"
    assert model.path.startswith(str(cache))


def test_several_models_are_listed(make_context, package, checkpoint):
    shutil.copytree(checkpoint(), package / "one")
    (package / "two.gguf").write_bytes(b"")
    with pytest.raises(ModelNotFoundError, match="2 were found") as caught:
        PackageSource(make_context()).resolve("package:model_package", None)
    assert str(package / "one") in str(caught.value)
    assert str(package / "two.gguf") in str(caught.value)


def test_no_model(make_context, package):
    with pytest.raises(ModelNotFoundError, match="0 were found"):
        PackageSource(make_context()).resolve("package:model_package", None)


@pytest.mark.parametrize("name", ["no_such_package", "no-such-distribution", "", "a/b", ".."])
def test_no_package(make_context, name):
    with pytest.raises(ModelNotFoundError, match="no installed package"):
        PackageSource(make_context()).resolve(f"package:{name}", None)


def test_which_names_match(make_context):
    matches = PackageSource(make_context()).matches
    assert matches("package:x") and not matches("org/name") and not matches("./package:x")
