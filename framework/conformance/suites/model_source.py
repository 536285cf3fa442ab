"""Suite of model sources: which names they take, and what they make of them."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Barrier, Thread
from typing import Any, cast

import pytest
from tokenizers import Tokenizer

from framework.conformance.base import NOT_DECLARED, Conformance
from framework.conformance.subject import Subject
from framework.conformance.worlds.engines import greedy
from framework.conformance.worlds.patience import within
from framework.conformance.worlds.tiny_model import tiny_model
from hookspecs.contracts.model import ModelSource, ResolvedModel
from hookspecs.errors import MissingDependencyError, ModelNotFoundError, UnsupportedModelError
from hookspecs.types.sampling import SamplingParams

__all__ = ["ModelSourceConformance"]

NAMES = 100
MATCH_S = 3.0
"""Seconds for a hundred names."""
RESOLVE_S = 120.0
"""Seconds for a model that may have to be converted."""
MISSING_S = 60.0
"""Seconds to find out that a model is not there, without a network."""
NOBODY = "conformance-no-such"
STRANGE = (
    "",
    " ",
    "\x00",
    "\n",
    "~conformance-nobody/model",
    "../" * 40,
    "\N{SNOWMAN}" * 3,
    "x" * 5000,
    "a/b/c/d",
    "%s{0}",
)
"""What users may give as model.name."""

Progress = list[tuple[Any, Any]]


class ModelSourceConformance(Conformance):
    """Model sources find what is theirs, leave the rest, and say what is wrong.

    What it resolves is the setting `model.name`, if it is a name that the source takes; else a
    directory that the kit writes, if it takes that. Without both only names are tested.
    """

    kind = "model_source"

    @pytest.fixture
    def progress(self) -> Progress:
        """What the source told of its progress."""
        return []

    @pytest.fixture
    def new(self, subject: Subject, progress: Progress) -> Callable[[], ModelSource]:
        """Makes sources."""
        plugins = subject.manager()
        return lambda: _new(plugins, subject, progress)

    @pytest.fixture
    def source(self, new: Callable[[], ModelSource]) -> ModelSource:
        """A new one."""
        return new()

    @pytest.fixture
    def model(self, subject: Subject, source: ModelSource) -> str:
        """The name of a model that the source takes."""
        name = subject.config().model.name
        if source.matches(name):
            return name
        name = str(tiny_model())
        if not source.matches(name):
            pytest.skip(f"{NOT_DECLARED}a model that it takes; name one as model.name")
        return name

    @pytest.fixture
    def no_network(self, monkeypatch: pytest.MonkeyPatch) -> list[object]:
        """What was tried to be reached."""
        tried: list[object] = []

        def refuse(*arguments: Any, **named: Any) -> Any:
            tried.append(arguments[-1] if arguments else named)
            raise OSError("the conformance kit lets nothing reach the network")

        for owner, name in (
            (socket.socket, "connect"),
            (socket.socket, "connect_ex"),
            (socket, "getaddrinfo"),
            (socket, "create_connection"),
        ):
            monkeypatch.setattr(owner, name, refuse)
        return tried

    # Names

    def test_any_name_is_answered(self, source: ModelSource, subject: Subject) -> None:
        """Requires nothing.
        Does: asks of all sorts of names whether they are the source's.
        Must: answer with a bool, the same each time, and never raise.
        """
        for name in _names(subject):
            try:
                answers = [source.matches(name) for _ in range(2)]
            except Exception as error:
                raise AssertionError(f"matches({name[:80]!r}) raised") from error
            assert set(map(type, answers)) == {bool}, f"matches({name[:80]!r}) gave {answers[0]!r}"
            assert answers[0] == answers[1], f"matches({name[:80]!r}) gave {answers}"

    def test_names_of_others_are_left(self, source: ModelSource) -> None:
        """Requires nothing.
        Does: asks of names of a form that no source knows.
        Must: answer False; a source that takes every name keeps later ones from being asked.
        """
        names = ("", f"{NOBODY}://model", f"{NOBODY}:a:b:c", "\x00")
        taken = [name for name in names if source.matches(name)]
        assert not taken, f"it takes {taken}, which are no names of models"

    def test_matching_is_fast_and_local(
        self, source: ModelSource, subject: Subject, no_network: list[object]
    ) -> None:
        """Requires nothing.
        Does: asks of a hundred names, with the network closed.
        Must: answer within milliseconds each, and try to reach nobody: every source is asked at
        each start.
        """
        names = [*_names(subject)] * 10

        def ask() -> None:
            for name in names[:NAMES]:
                source.matches(name)

        within(ask, f"matches, asked of {NAMES} names,", MATCH_S)
        assert not no_network, f"matches tried to reach {no_network[0]!r}"

    # What is not there

    def test_a_missing_model_is_named(
        self, source: ModelSource, subject: Subject, no_network: list[object]
    ) -> None:
        """Requires nothing.
        Does: resolves names that the source takes and that name nothing, with the network closed.
        Must: raise ModelNotFoundError or UnsupportedModelError with a text that has the name.
        """
        for name in _missing(subject, source):
            said = _refusal(source, name, None)
            assert said is not None, f"resolve gave a model for {name!r}, which does not exist"
            assert NOBODY in said, f"the error for {name!r} does not name it: {said}"

    def test_a_missing_revision_is_refused(
        self, source: ModelSource, model: str, no_network: list[object]
    ) -> None:
        """Requires a model.
        Does: resolves it at a revision that it does not have, with the network closed.
        Must: raise ModelNotFoundError with a text that has the revision; so does a source whose
        models have none.
        """
        said = _refusal(source, model, NOBODY)
        assert said is not None, f"resolve ignores the revision {NOBODY!r}"
        assert NOBODY in said, f"the error does not name the revision {NOBODY!r}: {said}"

    # What is there

    def test_what_it_finds_is_plausible(self, source: ModelSource, model: str) -> None:
        """Requires a model.
        Does: resolves it, and looks at what is said of it.
        Must: give the name as it was, paths of directories, numbers that a model can have, and
        defaults that are sampling parameters.
        """
        found = _resolve(source, model)
        assert isinstance(found, ResolvedModel), f"resolve gave {type(found).__name__}"
        assert found.name == model, f"the name {model!r} became {found.name!r}"
        for path in (found.path, found.tokenizer_path):
            assert path is None or Path(path).is_dir(), f"{path!r} is no directory"
        info = found.info
        assert info.architecture, "info.architecture is empty"
        assert info.vocab_size > 0, f"info.vocab_size is {info.vocab_size}"
        assert info.max_model_len > 0, f"info.max_model_len is {info.max_model_len}"
        assert info.hidden_size >= 0, f"info.hidden_size is {info.hidden_size}"
        special = [*info.eos_token_ids, *filter(None, [info.bos_token_id])]
        outside = [token for token in special if not 0 <= token < info.vocab_size]
        assert not outside, f"the special tokens {outside} are not below {info.vocab_size}"
        unknown = set(info.generation_defaults) - set(SamplingParams.__struct_fields__)
        assert not unknown, f"generation_defaults has {sorted(unknown)}, no sampling parameters"

    def test_its_tokenizer_loads(self, source: ModelSource, model: str) -> None:
        """Requires a model.
        Does: loads the tokenizer that it names, if it names one.
        Must: name a directory with a tokenizer.json, and say that there is a tokenizer exactly
        when it names one.
        """
        found = _resolve(source, model)
        named = found.tokenizer_path is not None
        assert found.info.has_tokenizer == named, (
            f"info.has_tokenizer is {found.info.has_tokenizer}, tokenizer_path is "
            f"{found.tokenizer_path!r}"
        )
        if found.tokenizer_path is not None:
            file = Path(found.tokenizer_path, "tokenizer.json")
            assert file.is_file(), f"there is no {file}"
            tokenizer = Tokenizer.from_file(str(file))
            assert tokenizer.encode("a").ids is not None

    def test_the_tokenizer_can_be_left_out(
        self, subject: Subject, model: str, progress: Progress
    ) -> None:
        """Requires a model.
        Does: resolves it with the setting `model.tokenizer` at `none`.
        Must: name no tokenizer.
        """
        plugins = subject.manager(model={"tokenizer": "none"})
        found = _resolve(_new(plugins, subject, progress), model)
        assert found.tokenizer_path is None, f"it names {found.tokenizer_path!r} all the same"
        assert not found.info.has_tokenizer, "info.has_tokenizer is true all the same"

    def test_resolving_again_gives_the_same(
        self, new: Callable[[], ModelSource], model: str
    ) -> None:
        """Requires a model.
        Does: resolves it twice with one object and once with another.
        Must: give the same each time; files are still there.
        """
        source = new()
        first, second, third = (_resolve(each, model) for each in (source, source, new()))
        assert first == second, f"first it gave {first}, then {second}"
        assert first == third, f"another object gave {third}, not {first}"
        assert first.path is None or Path(first.path).is_dir(), f"{first.path!r} is gone"

    def test_several_resolve_at_once(self, new: Callable[[], ModelSource], model: str) -> None:
        """Requires a model.
        Does: resolves it in four threads at once, each with an object of its own.
        Must: give all of them the same; the later ones wait, or find what the first one made.
        """
        barrier = Barrier(4)
        outcomes: list[Future[ResolvedModel]] = [Future() for _ in range(4)]

        def run(source: ModelSource, outcome: Future[ResolvedModel]) -> None:
            try:
                barrier.wait(RESOLVE_S)
                outcome.set_result(source.resolve(model, None))
            except BaseException as error:
                outcome.set_exception(error)

        for outcome in outcomes:
            name = f"conformance: resolve {model}"
            Thread(target=run, args=(new(), outcome), name=name, daemon=True).start()
        found = [outcome.result(RESOLVE_S) for outcome in outcomes]
        different = [each for each in found if each != found[0]]
        assert not different, f"one thread got {found[0]}, another one {different[0]}"

    def test_progress_is_a_share(self, source: ModelSource, model: str, progress: Progress) -> None:
        """Requires a model.
        Does: resolves it, and looks at what it told of its progress.
        Must: tell texts and shares from 0 to 1, if it tells any.
        """
        _resolve(source, model)
        for what, fraction in progress:
            assert isinstance(what, str), f"progress was told {what!r}, no text"
            assert what.strip(), "progress was told an empty text"
            assert isinstance(fraction, float | int), f"progress was told {fraction!r}, no number"
            assert 0 <= fraction <= 1, f"progress of {what!r} was {fraction}, not within 0 and 1"

    def test_an_engine_starts_from_it(self, subject: Subject, model: str) -> None:
        """Requires a model.
        Does: starts an engine with it, and generates with the configured worker.
        Must: start, and give what a worker that fits it can work with.
        """
        chosen = {"name": model, "source": subject.provider}
        with subject.launch(model=chosen) as engine:
            assert engine.model.name == model, f"the engine runs {engine.model.name!r}"
            (output,) = engine.generate([[0, 1, 2]], greedy(3))
        (completion,) = output.outputs
        assert len(completion.token_ids) == 3, (
            f"it ended with {completion.finish_reason}: {completion.error}"
        )


def _new(plugins: Any, subject: Subject, progress: Progress) -> ModelSource:
    made = plugins.create(
        subject.kind.name,
        subject.provider,
        progress=lambda what, fraction: progress.append((what, fraction)),
    )
    return cast("ModelSource", made)


def _resolve(source: ModelSource, name: str) -> ResolvedModel:
    return within(lambda: source.resolve(name, None), f"resolve({name!r})", RESOLVE_S)


def _refusal(source: ModelSource, name: str, revision: str | None) -> str | None:
    """What it says; None when it does not refuse."""
    try:
        within(lambda: source.resolve(name, revision), f"resolve({name!r})", MISSING_S)
    except (ModelNotFoundError, UnsupportedModelError, MissingDependencyError) as error:
        return str(error)
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(
            f"resolve({name!r}, {revision!r}) raised {type(error).__name__}, not "
            f"ModelNotFoundError: {error}"
        ) from error
    return None


def _names(subject: Subject) -> list[str]:
    return [*STRANGE, subject.config().model.name, *_candidates(subject)]


def _candidates(subject: Subject) -> list[str]:
    """Names of nothing, of forms that a source may take."""
    scheme = subject.config().model.name.partition(":")[0]
    ends = ("", ".gguf", ".tar", ".tar.gz", ".zip", ".txt")
    stems = (NOBODY, f"/{NOBODY}/{NOBODY}", f"./{NOBODY}", f"{NOBODY}/{NOBODY}")
    prefixes = {"", f"{subject.provider}:", f"{subject.provider}://", f"{scheme}:"}
    return [prefix + stem + end for prefix in sorted(prefixes) for stem in stems for end in ends]


def _missing(subject: Subject, source: ModelSource) -> list[str]:
    return [name for name in _candidates(subject) if source.matches(name)]
