"""The page of the control state machine, made from the table that the engine core follows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from framework.core.commands import COMMANDS
from framework.core.transitions import LATE_REFUSALS, TRANSITIONS, Operation, Outcome, Transition
from framework.docs.markdown import code, join, table
from framework.docs.source import class_source
from hookspecs.types.control import EngineState

__all__ = ["control_page"]

COLUMNS: Final = ("state", "result", "next state", "started", "waiting", "half arrived", "late")
GONE: Final = (EngineState.STOPPED, EngineState.DEAD)
INTRO: Final = (
    "An engine core is in one state at a time, and control commands run between two of its steps. "
    "What each does to requests, in each state, is in the tables below; the engine core looks it "
    "up in the same table from which this page is made. Commands that are given while the engine "
    "starts, or while weights are replaced, wait until that is over. A request can be aborted in "
    "every state. What is not in a table can not be called.",
    "`pause` and `sleep` abort what is in the engine unless their `mode` says otherwise: `wait` "
    "lets what has started run to its end, `keep` freezes it. `sleep` has levels: 0 only pauses, 1 "
    "keeps the weights in host memory and drops the KV cache, 2 drops both. `wake_up` brings back "
    "what its `tags` name (`weights`, `kv_cache`, `scheduling`), or everything without them. "
    "`update_weights` takes a `.safetensors` file or a directory of them, or (in Python) tensors "
    "by checkpoint name.",
    "Over HTTP, with `plugins.options.openai.admin_routes = true`: "
    "`curl -X POST http://127.0.0.1:8000/admin/sleep -H 'content-type: application/json' "
    '-d \'{"level": 1, "mode": "wait"}\'`. The content type is needed also without a body, '
    "so that pages of other sites can not call these routes.",
    "An error of a step, or of a worker that falls asleep or wakes up, leads from any state to "
    "`dead`; shutdown leads to `stopped`. Pending commands then fail with EngineDeadError, and so "
    "does every later one but `get_status`.",
)
NOTES: Final = (
    "- *started*: requests that have run, even if they were preempted since. *waiting*: those that "
    "have not. *half arrived*: those that are being decoded on their way in when the command is "
    "given; they count from when they are decoded, so as late ones. *late*: those that come after "
    "the command.",
    "- Where two states are named, the engine is in the first until the command can be answered. "
    "`wake_up(memory)` leads to `paused` once all memory is back; until then the engine is "
    "`waking`.",
    "- A pause that clears the cache, and sleep above level 0, forget all cached blocks. Requests "
    "that are frozen meanwhile are computed again afterwards, with the same output.",
    "- A pending `pause` or `sleep` fails with CommandError when `resume`, `wake_up` or `drain` "
    "takes it back, and is answered when a stronger one comes first. Of two drains the shorter "
    "deadline counts.",
)


def control_page() -> str:
    """Diagram, commands, and the table of each operation."""
    return join(
        [
            "# Control: pause, sleep, weights, drain",
            *INTRO,
            _diagram(),
            "## Commands",
            _commands(),
            "## What happens to requests",
            "\n".join(NOTES),
            *_refusals(),
            *_tables(),
        ]
    )


def _diagram() -> str:
    labels: dict[tuple[EngineState, EngineState], list[str]] = {}
    for rule in TRANSITIONS.values():
        for edge in ((rule.state, rule.next), (rule.next, rule.then)):
            names = labels.setdefault(edge, [])
            if edge[0] is not edge[1] and rule.operation not in names:
                names.append(rule.operation)
    lines = [
        f"    [*] --> {EngineState.RUNNING}",
    ]
    for (begin, end), names in labels.items():
        if names:
            lines.append(f"    {begin} --> {end}: {', '.join(names)}")
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def _commands() -> str:
    rows = []
    for command in COMMANDS.values():
        what = class_source(command.arguments).doc.partition(": ")[2]
        arguments = ", ".join(command.arguments.__struct_fields__)
        result = getattr(command.result, "__name__", str(command.result))
        if getattr(command.result, "__args__", ()):
            result = str(command.result).replace("typing.", "")
        rows.append((code(command.name), code(arguments), code(result), what))
    return table(("command", "arguments", "answer", "what it does"), rows)


def _refusals() -> Iterator[str]:
    yield (
        "A request that arrives in one of these states ends at once with finish reason `error`; "
        "`AsyncLLM` and the HTTP server refuse it with EngineUnavailableError (503) if nothing of "
        "it was given:"
    )
    yield table(("state", "error"), [(code(state), text) for state, text in LATE_REFUSALS.items()])


def _tables() -> Iterator[str]:
    for operation in Operation:
        yield f"### {operation}"
        states_of: dict[tuple[str, ...], list[EngineState]] = {}
        for state in EngineState:
            rule = TRANSITIONS.get((operation, state))
            if rule is not None and state not in GONE:
                states_of.setdefault(_cells(rule), []).append(state)
        yield table(
            COLUMNS,
            [(", ".join(map(code, states)), *cells) for cells, states in states_of.items()],
        )


def _cells(rule: Transition) -> tuple[str, ...]:
    result = str(rule.outcome)
    if rule.outcome is Outcome.REFUSED:
        result = f"refused: {rule.refusal}"
    elif rule.refusal:
        result = f"done, or refused: {rule.refusal.format(asleep='what is not named')}"
    states = code(rule.next) if rule.next is rule.then else f"{code(rule.next)}, {code(rule.then)}"
    return (
        result,
        "as before" if rule.state is rule.next is rule.then else states,
        rule.running,
        rule.waiting,
        rule.half_arrived,
        rule.late,
    )
