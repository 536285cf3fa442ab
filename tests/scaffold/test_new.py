"""Packages that `framework plugins new` writes are complete: formatted, typed, tested, conformant.

About a minute of processor time on two cores, and so half of it by the clock. What keeps it there:
all packages are checked by one run of each program, the kit runs in one process for half of the
kinds each, and only one package is really installed.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from framework.cli.main import main
from framework.plugins.specs import HOOKS
from framework.scaffold.names import MAX_NAME
from framework.scaffold.package import new_package
from framework.scaffold.templates import kinds
from hookspecs.errors import ConfigError
from hookspecs.info import Tier
from hookspecs.kinds import PLUGIN_KINDS
from hookspecs.version import API_VERSION
from tests.docs.guide import ROOT, execute
from tests.scaffold.jobs import OWN_TESTS, Jobs, write_all

PROVISIONAL = sorted(
    kind.name for kind in PLUGIN_KINDS.values() if HOOKS[kind.hook].meta.tier is Tier.PROVISIONAL
)
FILES = {
    ".github/workflows/ci.yml",
    ".gitignore",
    "README.md",
    "pyproject.toml",
    "src/quick_one/__init__.py",
    "src/quick_one/options.py",
    "src/quick_one/plugin.py",
    "src/quick_one/py.typed",
    "tests/test_conformance.py",
    "tests/test_quick_one.py",
}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a package of each kind."""
    directory = tmp_path_factory.mktemp("packages")
    write_all(directory)
    return directory


@pytest.fixture(scope="module")
def jobs(packages: Path) -> Iterator[Jobs]:
    """What checks them, begun at once."""
    with ThreadPoolExecutor(2) as pool:
        yield Jobs(packages, pool)


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """A directory that is not there yet."""
    return tmp_path / "package"


# What is written


@pytest.mark.usefixtures("jobs")
def test_there_is_a_template_for_every_kind_that_is_used() -> None:
    assert {*kinds()} == PLUGIN_KINDS.keys() - {*PROVISIONAL} | {"observer", "filter"}


@pytest.mark.parametrize("kind", kinds())
def test_a_package_is_complete(kind: str, fresh: Path) -> None:
    written = new_package(kind, "quick-one", fresh)
    found = {str(path.relative_to(fresh)) for path in fresh.rglob("*") if path.is_file()}
    assert found == {str(path.relative_to(fresh)) for path in written}
    assert found >= FILES, f"there is no {FILES - found}"
    project = tomllib.loads((fresh / "pyproject.toml").read_text())["project"]
    assert project["name"] == "framework-quick-one"
    assert project["entry-points"]["framework.plugins"] == {"quick-one": "quick_one.plugin:plugin"}
    assert "license" not in project
    major, minor = API_VERSION
    assert (
        f'api=">={major}.{minor},<{major + 1}"' in (fresh / "src/quick_one/plugin.py").read_text()
    )
    readme = (fresh / "README.md").read_text()
    assert "framework conform quick-one" in readme and "img.shields.io" in readme
    text = "".join(path.read_text() for path in written)
    assert "$" not in text and "PACKAGE" not in text


def test_a_distribution_may_have_another_name(fresh: Path) -> None:
    new_package("observer", "quick-one", fresh, distribution="Acme.Quick")
    project = tomllib.loads((fresh / "pyproject.toml").read_text())["project"]
    assert project["name"] == "Acme.Quick"
    assert "pip install Acme.Quick" in (fresh / "README.md").read_text()


def test_what_it_depends_on_is_this_release_or_a_later_one(fresh: Path) -> None:
    new_package("eviction_policy", "quick-one", fresh)
    project = tomllib.loads((fresh / "pyproject.toml").read_text())["project"]
    own = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    first, second, _ = own.split(".")
    assert project["dependencies"][0] == f"engine-framework>={first}.{second}"
    assert "engine-framework[conform]" in project["optional-dependencies"]["dev"]


# What may be asked for


@pytest.mark.parametrize("kind", PROVISIONAL)
def test_a_kind_that_is_not_used_yet_is_refused(kind: str, fresh: Path) -> None:
    with pytest.raises(ConfigError, match=f"'{kind}' offers, and does not use it yet.*scheduler"):
        new_package(kind, "quick-one", fresh)
    assert not fresh.exists()


def test_an_unknown_kind_is_refused_with_the_nearest(fresh: Path) -> None:
    with pytest.raises(ConfigError, match=r"'schedular'\. Did you mean scheduler.*tracer"):
        new_package("schedular", "quick-one", fresh)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Quick", "lower case"),
        ("quick_one", "lower case"),
        ("quick--one", "lower case"),
        ("-quick", "lower case"),
        ("", "lower case"),
        ("2quick", "a letter first"),
        ("x" * (MAX_NAME + 1), f"at most {MAX_NAME}"),
        ("import", "Python"),
        ("none", "Python"),
        ("continuous", "taken by the installed plugin 'scheduler-continuous'"),
        ("worker-scripted", "taken by"),
        ("json", "module 'json'"),
        ("hookspecs", "module 'hookspecs'"),
        ("tests", "its own files and tests"),
        ("conftest", "its own files and tests"),
        ("conformance", "its own files and tests"),
        ("test-conformance", "its own files and tests"),
        ("build", "its own files and tests"),
        ("scheduler-output", "'SchedulerOutput', a word that the code of the package uses"),
    ],
)
def test_a_name_that_can_not_be_used_is_refused(name: str, why: str, fresh: Path) -> None:
    with pytest.raises(ConfigError, match=why):
        new_package("scheduler", name, fresh)
    assert not fresh.exists()


def test_a_distribution_name_is_checked(fresh: Path) -> None:
    with pytest.raises(ConfigError, match="'-x' can not be the name of a distribution"):
        new_package("scheduler", "quick-one", fresh, distribution="-x")


@pytest.mark.parametrize("taken", ["engine-framework", "Engine_Framework", "Pluggy"])
def test_a_distribution_that_is_installed_is_not_replaced(taken: str, fresh: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is a distribution .* already"):
        new_package("scheduler", "quick-one", fresh, distribution=taken)
    assert not fresh.exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    for taken in (tmp_path, tmp_path / "README.md"):
        with pytest.raises(ConfigError, match="is there already; nothing was written"):
            new_package("tracer", "quick-one", taken)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    with pytest.raises(ConfigError, match="can not be written"):
        new_package("tracer", "quick-one", tmp_path / "README.md" / "below")


def test_an_empty_directory_is_used(tmp_path: Path) -> None:
    assert new_package("tracer", "quick-one", tmp_path)


# The command


def test_the_command_writes_and_says_what_is_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["plugins", "new", "tracer", "quick-one"]) == 0
    said = capsys.readouterr().out
    assert "wrote quick-one/pyproject.toml" in said
    assert "cd quick-one" in said and "framework conform quick-one" in said
    assert (tmp_path / "quick-one" / "src" / "quick_one" / "tracer.py").is_file()
    assert main(["plugins", "new", "tracer", "quick-one"]) == 2
    assert "is there already" in capsys.readouterr().err


def test_the_command_takes_directory_and_distribution(fresh: Path) -> None:
    arguments = ["--directory", str(fresh), "--distribution", "acme"]
    assert main(["plugins", "new", "filter", "quick-one", *arguments]) == 0
    assert 'name = "acme"' in (fresh / "pyproject.toml").read_text()


def test_a_command_that_is_built_in_is_refused(
    fresh: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plugins", "new", "cli_command", "chat", "--directory", str(fresh)]) == 2
    assert "'chat' is built in" in capsys.readouterr().err
    assert main(["plugins", "new", "engine_command", "drain", "--directory", str(fresh)]) == 2
    assert "'drain' is that of a command which the engine has" in capsys.readouterr().err
    assert not fresh.exists()


# What comes of it


def test_packages_are_formatted_and_lint_is_silent(packages: Path, tmp_path: Path) -> None:
    """Whatever the length of the name: the longest, the shortest, and those between."""
    for kind in kinds():
        for name in ("q", "a-name-that-is-as-long-as-it-goes"[:MAX_NAME].rstrip("-")):
            new_package(kind, name, tmp_path / kind / name)
    for directory in (packages, tmp_path):
        for words in (["check"], ["format", "--check"]):
            done = subprocess.run(
                [sys.executable, "-m", "ruff", *words, "--no-cache", str(directory)],
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stdout + done.stderr


def test_a_package_can_be_installed(tmp_path: Path) -> None:
    """Without its dependencies, which are there; the others differ in names alone."""
    new_package("kv_cache_manager", "quick-one", tmp_path / "package")
    pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    target = ["--no-build-isolation", "--target", str(tmp_path / "src")]
    code, said = execute(tmp_path, "python", *pip, *target, str(tmp_path / "package"))
    assert code == 0, said
    code, said = execute(tmp_path, "framework", "plugins", "check", "quick-one")
    assert (code, said) == (0, f"quick-one fits plugin API {'.'.join(map(str, API_VERSION))}\n")


def test_some_packages_pass_their_own_tests(jobs: Jobs) -> None:
    said = jobs.own_tests.result()
    assert said.endswith("exit code 0"), said
    assert {*OWN_TESTS} < {*kinds()}


def test_packages_are_strictly_typed(jobs: Jobs) -> None:
    said = jobs.types.result()
    assert said.endswith("exit code 0"), said


@pytest.mark.parametrize("kind", kinds())
def test_the_kit_finds_nothing(kind: str, jobs: Jobs) -> None:
    said = jobs.conform[kinds().index(kind) % 2].result()
    assert f"{kind}: passed" in said.splitlines(), said
