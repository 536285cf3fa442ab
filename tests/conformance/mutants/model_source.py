"""Broken model sources."""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from builtin_plugins.worker_scripted.options import ScriptedOptions
from builtin_plugins.worker_scripted.source import ScriptedSource
from hookspecs.contracts.model import ResolvedModel
from hookspecs.errors import ModelNotFoundError
from tests.conformance.mutants.mutant import Mutant, providing

__all__ = ["MUTANTS"]


class Scripted(ScriptedSource):
    """A right one: knows `scripted`, and `scripted:DIR` with a tokenizer."""

    def changed(self, name: str, **info: Any) -> ResolvedModel:
        found = super().resolve(name, None)
        return msgspec.structs.replace(
            found, info=msgspec.structs.replace(found.info, **info) if info else found.info
        )


class MatchesByLength(Scripted):
    def matches(self, name: str) -> bool:
        return len(name)  # type: ignore[return-value]


class RaisesForOthers(Scripted):
    def matches(self, name: str) -> bool:
        if os.path.basename(name)[0] == "/":
            return False
        return super().matches(name)


class TakesEverything(Scripted):
    def matches(self, name: str) -> bool:
        return True


class AsksAServer(Scripted):
    def matches(self, name: str) -> bool:
        try:
            socket.create_connection(("127.0.0.1", 9), timeout=0.1).close()
        except OSError:
            return super().matches(name)
        return True


class TakesItsTime(Scripted):
    def matches(self, name: str) -> bool:
        time.sleep(0.1)
        return super().matches(name)


class LetsOsErrorsOut(Scripted):
    def resolve(self, name: str, revision: str | None) -> ResolvedModel:
        directory = name.removeprefix("scripted").removeprefix(":")
        if directory:
            os.listdir(directory)
        return super().resolve(name, revision)


class DoesNotSayWhich(Scripted):
    def resolve(self, name: str, revision: str | None) -> ResolvedModel:
        try:
            return super().resolve(name, revision)
        except ModelNotFoundError:
            raise ModelNotFoundError("there is no such model") from None


class FindsAnything(Scripted):
    def resolve(self, name: str, revision: str | None) -> ResolvedModel:
        return super().resolve("scripted", None)


class IgnoresRevisions(Scripted):
    def resolve(self, name: str, revision: str | None) -> ResolvedModel:
        return super().resolve(name, None)


class Renames(Scripted):
    def resolve(self, name: str, revision: str | None) -> ResolvedModel:
        return msgspec.structs.replace(super().resolve(name, revision), name="model")


class EndsOutside(Scripted):
    """The end token is not in the vocabulary."""

    def resolve(self, name: str, revision: str | None) -> ResolvedModel:
        return self.changed(name, vocab_size=2)


class PathOfAFile(Scripted):
    def resolve(self, name: str, revision: str | None) -> ResolvedModel:
        return msgspec.structs.replace(super().resolve(name, revision), path=__file__)


class PromisesATokenizer(Scripted):
    def resolve(self, name: str, revision: str | None) -> ResolvedModel:
        return self.changed(name, has_tokenizer=True)


class NamesAnEmptyTokenizer(Scripted):
    def resolve(self, name: str, revision: str | None) -> ResolvedModel:
        found = self.changed(name, has_tokenizer=True)
        return msgspec.structs.replace(found, tokenizer_path=str(Path(__file__).parent))


class IgnoresTheSetting(Scripted):
    """Has a tokenizer, whatever the setting says."""

    def resolve(self, name: str, revision: str | None) -> ResolvedModel:
        return NamesAnEmptyTokenizer(self.context).resolve(name, revision)


class CountsModels(Scripted):
    _count: ClassVar[Any] = itertools.count(100)

    def resolve(self, name: str, revision: str | None) -> ResolvedModel:
        return self.changed(name, max_model_len=next(self._count))


class WorksInOneThread(Scripted):
    """Two at once fall over each other's temporary files."""

    _busy: ClassVar[threading.Lock] = threading.Lock()

    def resolve(self, name: str, revision: str | None) -> ResolvedModel:
        if not self._busy.acquire(blocking=False):
            raise FileExistsError("model.tmp")
        try:
            time.sleep(0.1)
            return super().resolve(name, revision)
        finally:
            self._busy.release()


class ProgressInPercent(Scripted):
    def resolve(self, name: str, revision: str | None) -> ResolvedModel:
        self.context.progress("downloading", 50.0)
        return super().resolve(name, revision)


class TakesLayersForTheContext(Scripted):
    """Reads the wrong number of its description."""

    def resolve(self, name: str, revision: str | None) -> ResolvedModel:
        return self.changed(name, max_model_len=2)


def _mutant(fault: str, part: type[ScriptedSource], *caught_by: str) -> Mutant:
    plugin = providing("model_source", part, options=ScriptedOptions)
    return Mutant("model_source", fault, plugin, caught_by)


MUTANTS = [
    _mutant("answers with a length", MatchesByLength, "test_any_name_is_answered"),
    _mutant("raises for other names", RaisesForOthers, "test_any_name_is_answered"),
    _mutant("takes every name", TakesEverything, "test_names_of_others_are_left"),
    _mutant("asks a server what it takes", AsksAServer, "test_matching_is_fast_and_local"),
    _mutant("takes its time for a name", TakesItsTime, "test_matching_is_fast_and_local"),
    _mutant("lets OSError out", LetsOsErrorsOut, "test_a_missing_model_is_named"),
    _mutant("does not say which is missing", DoesNotSayWhich, "test_a_missing_model_is_named"),
    _mutant("finds what is not there", FindsAnything, "test_a_missing_model_is_named"),
    _mutant("ignores revisions", IgnoresRevisions, "test_a_missing_revision_is_refused"),
    _mutant("renames the model", Renames, "test_what_it_finds_is_plausible"),
    _mutant("an end token outside", EndsOutside, "test_what_it_finds_is_plausible"),
    _mutant("a path of a file", PathOfAFile, "test_what_it_finds_is_plausible"),
    _mutant("promises a tokenizer", PromisesATokenizer, "test_its_tokenizer_loads"),
    _mutant("a tokenizer without files", NamesAnEmptyTokenizer, "test_its_tokenizer_loads"),
    _mutant("a tokenizer in any case", IgnoresTheSetting, "test_the_tokenizer_can_be_left_out"),
    _mutant("counts models", CountsModels, "test_resolving_again_gives_the_same"),
    _mutant("falls over another one", WorksInOneThread, "test_several_resolve_at_once"),
    _mutant("tells progress in percent", ProgressInPercent, "test_progress_is_a_share"),
    _mutant(
        "a context too short for a prompt",
        TakesLayersForTheContext,
        "test_an_engine_starts_from_it",
    ),
]
