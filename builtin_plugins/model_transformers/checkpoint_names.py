"""What names in a checkpoint mean for a loaded model.

They are not always the module's: transformers renames, merges and splits tensors while it loads
(the experts of a mixture, for example). Its own tables of rules are applied here.
"""

from __future__ import annotations

import copy
import difflib
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (
    WeightConverter,
    WeightRenaming,
    dot_natural_key,
    rename_source_key,
    revert_weight_conversion,
)

from hookspecs.errors import InvalidRequestError, UnsupportedFeatureError

__all__ = ["CheckpointNames", "TensorGroup", "misfit"]

_IGNORED = (r"rotary_emb\.inv_freq$", r"(^|\.)position_ids$")
"""Buffers that old checkpoints have and models compute."""


@dataclass
class TensorGroup:
    """The tensors of a checkpoint that are converted together: one, or all that are merged."""

    target: str
    """Name of the parameter that they make; of the first, when they make several."""
    rule: Any = None
    """transformers' WeightConverter; None: the tensor is the parameter."""
    members: list[tuple[str, str]] = field(default_factory=list)
    """Name in the checkpoint, and the pattern of the rule that it matches."""

    @property
    def names(self) -> list[str]:
        """Of the members."""
        return [name for name, _ in self.members]

    def convert(self, tensors: Mapping[str, torch.Tensor], model: Any) -> dict[str, torch.Tensor]:
        """Parameter name to its new value. Raises what torch raises when shapes do not fit."""
        if self.rule is None:
            return {self.target: tensors[self.names[0]]}
        rule = copy.deepcopy(self.rule)
        # Parts are merged in the order in which loading meets them.
        for name, pattern in sorted(self.members, key=lambda member: dot_natural_key(member[0])):
            rule.add_tensor(self.target, name, pattern, tensors[name])
        made = rule.convert(self.target, model=model, config=model.config)
        return {
            name: value[0] if isinstance(value, list) else value for name, value in made.items()
        }


class CheckpointNames:
    """For one update of one model."""

    def __init__(self, model: Any, unused: frozenset[str]) -> None:
        """`unused`: names that the checkpoint which was loaded has, and the model has not.
        UnsupportedFeatureError for a model whose names transformers can not tell."""
        self.model = model
        self.kind = type(model).__name__
        self.parameters: dict[str, torch.Tensor] = dict(
            itertools.chain(
                model.named_parameters(remove_duplicate=False),
                model.named_buffers(remove_duplicate=False),
            )
        )
        self._state = {
            name: tensor.to("meta")
            for name, tensor in model.state_dict().items()
            if name in self.parameters
        }
        rules = get_model_conversion_mapping(model)
        self._renamings = [rule for rule in rules if isinstance(rule, WeightRenaming)]
        self._converters = [rule for rule in rules if isinstance(rule, WeightConverter)]
        self._by_pattern = {
            pattern: rule for rule in self._converters for pattern in rule.source_patterns
        }
        self._unused = unused
        patterns = itertools.chain(_IGNORED, model._keys_to_ignore_on_load_unexpected or ())
        self._ignored = re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
        try:
            self.checkpoint: dict[str, torch.Tensor] = revert_weight_conversion(model, self._state)
        except Exception as error:
            raise UnsupportedFeatureError(
                f"transformers can not tell how checkpoints of {self.kind} name their weights "
                f"({type(error).__name__}: {error}), so that these can not be replaced"
            ) from error

    def group(self, names: Mapping[str, Any]) -> list[TensorGroup]:
        """Everything named but what loading ignores. InvalidRequestError for a name that means
        nothing, for two names of one weight, and when only a part of what is merged is named."""
        groups: dict[str, TensorGroup] = {}
        for name in names:
            found = self._resolve(name)
            if found is None:
                continue
            target, pattern = found
            rule = None if pattern is None else self._by_pattern[pattern]
            group = groups.setdefault(target, TensorGroup(target, rule))
            if group.members and (rule is None or group.rule is None):
                raise misfit(f"{group.names[0]!r} and {name!r} are the same weight; give one")
            group.members.append((name, pattern or name))
        self._check_complete([group for group in groups.values() if group.rule is not None])
        return list(groups.values())

    def _resolve(self, name: str) -> tuple[str, str | None] | None:
        """Parameter (of several: the first) and the rule's pattern, if one converts it; None for
        a name that loading ignores."""
        prefix = self.model.base_model_prefix
        target, pattern = rename_source_key(
            name, self._renamings, self._converters, prefix, self._state
        )
        if target not in self._state and name in self._state:
            return name, None
        if target in self._state:
            return target, pattern
        if target in self._unused or self._ignored.search(target):
            return None
        raise self._unknown(name, self.checkpoint)

    def _check_complete(self, merged: list[TensorGroup]) -> None:
        if not merged:
            return
        needed: dict[str, list[str]] = {}
        for name in self.checkpoint:
            found = self._resolve(name)
            if found is not None and found[1] is not None:
                needed.setdefault(found[0], []).append(name)
        for group in merged:
            given, expected = group.names, needed.get(group.target)
            if expected is None:
                # The checkpoint that was loaded was merged already. Shapes tell what is missing.
                continue
            for name in given:
                if name not in expected:
                    raise self._unknown(name, expected)
            missing = [name for name in expected if name not in given]
            if missing:
                raise misfit(
                    f"{given[0]!r} is part of {group.target!r}, which is replaced as a whole: all "
                    f"of its {len(expected)} tensors are needed, and {missing[0]!r} is missing"
                )

    def _unknown(self, name: str, known: Any) -> InvalidRequestError:
        nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
        hint = f"; the nearest name is {nearest[0]!r}" if nearest else ""
        return misfit(f"{self.kind} has no weight {name!r}{hint}")


def misfit(reason: str) -> InvalidRequestError:
    """The error for tensors that can not be taken."""
    return InvalidRequestError(f"update_weights: {reason}. Nothing was replaced.", param="tensors")
