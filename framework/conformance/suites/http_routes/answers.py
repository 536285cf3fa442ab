"""Answers to what is known, to what is not, and beside an engine in trouble."""

from __future__ import annotations

from collections.abc import Iterator

from framework.conformance.subject import Subject
from framework.conformance.suites.http_routes.base import STUCK_S, UNKNOWN, HttpRoutesPart
from framework.conformance.worlds.asgi import Answer, Asked, ask
from framework.conformance.worlds.engine_client import TROUBLES, Mood
from framework.conformance.worlds.routes import (
    METHODS,
    Rig,
    altered,
    garbage,
    in_loop,
    known_requests,
)

__all__ = ["Answers"]


class Answers(HttpRoutesPart):
    """Every request is answered once, in the form of ASGI."""

    # Answers

    def test_what_it_knows_is_answered(self, subject: Subject) -> None:
        """Requires nothing.
        Does: asks for `/` and what the example names, of an engine that is well.
        Must: answer each with one start and one end, none as a failure of the server, and at
        least one with success.
        """

        async def work(rig: Rig) -> list[Answer]:
            return [await ask(rig.mount().app, asked) for asked in known_requests(subject)]

        answers = in_loop(subject, work, "an application")
        _check(answers)
        statuses = {str(answer.asked): answer.status for answer in answers}
        assert any(answer.status and answer.status < 400 for answer in answers), (
            f"no request that the kit knows succeeds ({statuses}), so it can test little; name "
            "some as requests in the table of examples in conform.toml"
        )

    def test_what_it_does_not_know_is_answered(self, subject: Subject) -> None:
        """Requires nothing.
        Does: asks for paths that are not there, and by all methods, one of which is none.
        Must: answer each once, and not as a failure of the server.
        """

        async def work(rig: Rig) -> list[Answer]:
            app = rig.mount().app
            paths = ["", UNKNOWN, UNKNOWN + "/", *(each.path for each in known_requests(subject))]
            return [await ask(app, Asked(m, path)) for path in paths for m in METHODS]

        _check(in_loop(subject, work, "an application"))

    def test_garbage_is_answered(self, subject: Subject, seed: int) -> None:
        """Requires nothing.
        Does: sends random queries, headers and bodies that no client of its own would send; and
        the requests of the example with text, nothing and huge numbers in place of each value of
        their queries and each part of their paths.
        Must: answer each once, and not as a failure of the server.
        """

        async def work(rig: Rig) -> list[Answer]:
            app, known = rig.mount().app, known_requests(subject)
            sent = [*garbage(seed, known, 120), *altered(known)]
            return [await ask(app, asked) for asked in sent]

        _check(in_loop(subject, work, f"an application that is sent garbage (seed {seed})"))

    def test_it_lives_where_it_is_mounted(self, subject: Subject) -> None:
        """Requires nothing.
        Does: mounts it in three places, of which a proxy adds one, and asks the same.
        Must: answer with the same status in each, and redirect to nothing above its place.
        """
        roots = ["/plugins/conform", "/plugins/another", "/outer/plugins/conform"]

        async def work(rig: Rig) -> list[list[Answer]]:
            app = rig.mount().app
            asked = [*known_requests(subject), Asked(path=UNKNOWN)]
            return [[await ask(app, each, root=root) for root in roots] for each in asked]

        for answers in in_loop(subject, work, "an application"):
            statuses = [answer.status for answer in answers]
            assert len(set(statuses)) == 1, (
                f"{answers[0].asked} is answered {statuses}, mounted at {roots}; the path to look "
                "at is scope['path'] without scope['root_path']"
            )
            for root, answer in zip(roots, answers, strict=True):
                for target in _redirects(answer):
                    inside = not target.startswith("/") or target.startswith(root)
                    assert inside, f"{answer.asked}, mounted at {root}, redirects to {target}"

    # Engines

    def test_an_engine_in_trouble_is_told_of(self, subject: Subject) -> None:
        """Requires nothing.
        Does: asks while the engine is dead, unavailable, full, refuses, and fails in the middle.
        Must: answer, or let the engine's error out before it has begun to answer; the front end
        has an answer for that.
        """

        async def work(rig: Rig) -> list[tuple[Mood, Answer]]:
            pairs = [(mood, asked) for mood in TROUBLES for asked in known_requests(subject)]
            return [(mood, await ask(rig.mount(mood).app, asked)) for mood, asked in pairs]

        for mood, answer in in_loop(subject, work, "an application whose engine is in trouble"):
            fault = answer.fault()
            assert fault is None, f"with an engine that is {mood.value}: {fault}"

    def test_a_slow_engine_holds_nobody_else_up(self, subject: Subject) -> None:
        """Requires nothing.
        Does: asks while the engine answers only after other tasks had their turn.
        Must: await it; a call that waits without `await` blocks the event loop, and with it the
        engine's answer and all requests.
        """

        async def work(rig: Rig) -> list[Answer]:
            app = rig.mount(Mood.SLOW).app
            return [await ask(app, asked) for asked in known_requests(subject)]

        answers = in_loop(subject, work, "a request, for it blocks the event loop,", STUCK_S)
        _check(answers)


def _check(answers: list[Answer]) -> None:
    for answer in answers:
        fault = answer.fault()
        assert fault is None, fault
        assert not answer.failed, (
            f"{answer.asked} is answered {answer.status}, as a failure of the server: "
            f"{answer.error or answer.body[:200]!r}"
        )


def _redirects(answer: Answer) -> Iterator[str]:
    """Paths that it leads to."""
    if answer.status is not None and 300 <= answer.status < 400:
        for name, value in answer.headers:
            if name.lower() == b"location":
                yield value.decode("latin-1").removeprefix("http://localhost")
