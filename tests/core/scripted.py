"""An engine with the scripted worker, for exact tests of the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import framework
from framework import SamplingParams
from framework.launcher import Engine


def launch_scripted(
    *, plugins: Sequence[object] = (), scripted: dict[str, Any] | None = None, **sections: Any
) -> Engine:
    """Small blocks, all checks on; sections override."""
    options = {"scripted": scripted or {}}
    settings: dict[str, Any] = {
        "model": {"name": "scripted"},
        "executor": {"worker": "scripted"},
        "cache": {"block_size": 4, "num_blocks": 64},
        "scheduler": {"max_num_seqs": 8, "max_num_batched_tokens": 32},
        "stats": {"loggers": []},
        "engine": {"debug": True},
        # What happens to be installed has no part in it.
        "plugins": {"activation": "none", "options": options},
    }
    for section, values in sections.items():
        if section == "plugins_options":
            options.update(values)
        else:
            settings[section] = {**settings.get(section, {}), **values}
    return framework.launch(settings, plugins=plugins)


def greedy(max_tokens: int, script: dict[str, Any] | None = None, **fields: Any) -> SamplingParams:
    """Token-only greedy parameters, with a script for the worker."""
    fields.setdefault("ignore_eos", True)
    fields.setdefault("temperature", 0)
    return SamplingParams(
        max_tokens=max_tokens,
        detokenize=False,
        extensions={} if script is None else {"scripted": script},
        **fields,
    )


def tokens_of(outputs: Sequence[Any]) -> list[list[int]]:
    """Token ids of the first output of each request."""
    return [output.outputs[0].token_ids for output in outputs]
