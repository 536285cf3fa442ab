"""Builds the tokenizer files of a model from the metadata of its GGUF file."""

from __future__ import annotations

import json
from collections import Counter
from enum import IntEnum
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers import processors as post_processors
from tokenizers.models import BPE

from builtin_plugins.model_sources.gguf_file import GgufFile
from builtin_plugins.model_sources.tokenizer_rules import RULES, SplitRule

__all__ = ["write_tokenizer"]

_PREFIX = "tokenizer.ggml"


class _Kind(IntEnum):
    """Values of `tokenizer.ggml.token_type` that matter here."""

    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5


def write_tokenizer(file: GgufFile, directory: Path) -> None:
    """Writes tokenizer.json, tokenizer_config.json, and chat_template.jinja if there is one.

    Raises UnsupportedModelError when the file has no byte pair encoding of the GPT-2 kind, or
    one whose way to split text is not known.
    """
    rule = _split_rule(file)
    tokens, kinds = _vocabulary(file)
    tokenizer = _build(file, rule, tokens, kinds)
    tokenizer.save(str(directory / "tokenizer.json"))

    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": file.require(f"{file.require('general.architecture')}.context_length"),
        **_named_special_tokens(file, tokens),
    }
    template = file.get("tokenizer.chat_template")
    if template is not None:
        config["chat_template"] = template
        (directory / "chat_template.jinja").write_text(template, encoding="utf-8")
    text = json.dumps(config, indent=2, ensure_ascii=False)
    (directory / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")


def _split_rule(file: GgufFile) -> SplitRule:
    model = file.require(f"{_PREFIX}.model")
    if model != "gpt2":
        raise file.error(
            f"its tokenizer is of the kind {model!r}; only 'gpt2' (byte pair encoding) can be "
            "converted",
            "Use the model in Hugging Face format.",
        )
    name = file.get(f"{_PREFIX}.pre")
    rule = RULES.get(name) if name is not None else None
    if rule is None:
        raise file.error(
            f"the way its tokenizer splits text (tokenizer.ggml.pre) is {name!r}; known are "
            f"{', '.join(sorted(RULES))}",
            "Use the model in Hugging Face format.",
        )
    return rule


def _vocabulary(file: GgufFile) -> tuple[list[str], list[int]]:
    """Texts and kinds of the tokens by id, without the unused ones that fill up the end."""
    tokens = list(file.require(f"{_PREFIX}.tokens"))
    kinds = list(file.require(f"{_PREFIX}.token_type"))
    if len(kinds) != len(tokens):
        raise file.error(
            f"it has {len(tokens)} tokens but {len(kinds)} token types",
            "The file is damaged; download it again.",
        )
    while kinds and kinds[-1] == _Kind.UNUSED:
        del tokens[-1], kinds[-1]
    repeated = [token for token, count in Counter(tokens).items() if count > 1]
    if repeated:
        raise file.error(
            f"{len(repeated)} tokens occur more than once: {repeated[:5]}",
            "Use the model in Hugging Face format.",
        )
    return tokens, kinds


def _build(file: GgufFile, rule: SplitRule, tokens: list[str], kinds: list[int]) -> Tokenizer:
    vocabulary = {token: i for i, token in enumerate(tokens)}
    merges = [tuple(m.split(" ", 1)) for m in file.require(f"{_PREFIX}.merges")]
    try:
        model = BPE(
            vocab=vocabulary, merges=merges, fuse_unk=False, ignore_merges=rule.ignore_merges
        )
    except Exception as error:  # the library raises no narrower class
        raise file.error(
            f"its tokenizer is inconsistent ({error})", "Download the file again."
        ) from error
    tokenizer = Tokenizer(model)
    if rule.nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _pre_tokenizer(rule)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = _post_processor(file, rule, tokens)
    tokenizer.add_tokens(
        [
            AddedToken(token, special=kind == _Kind.CONTROL, normalized=False)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind in (_Kind.CONTROL, _Kind.USER_DEFINED)
        ]
    )
    return tokenizer


def _pre_tokenizer(rule: SplitRule) -> pre_tokenizers.PreTokenizer:
    steps: list[pre_tokenizers.PreTokenizer] = []
    if rule.single_digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if rule.pattern is not None:
        steps.append(pre_tokenizers.Split(Regex(rule.pattern), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=rule.pattern is None))
    return pre_tokenizers.Sequence(steps)


def _post_processor(
    file: GgufFile, rule: SplitRule, tokens: list[str]
) -> post_processors.PostProcessor:
    byte_level = post_processors.ByteLevel(trim_offsets=False)
    add_bos = file.get(f"{_PREFIX}.add_bos_token")
    wanted = {
        "bos": rule.add_bos if add_bos is None else add_bos,
        "eos": bool(file.get(f"{_PREFIX}.add_eos_token")),
    }
    added = {
        name: file.require(f"{_PREFIX}.{name}_token_id") for name, add in wanted.items() if add
    }
    if not added:
        return byte_level
    bos, eos = (tokens[added[name]] if name in added else None for name in ("bos", "eos"))
    single = [part for part in (bos, "$A", eos) if part is not None]
    pair = [*single, *(f"{part}:1" for part in (bos, "$B", eos) if part is not None)]
    template = post_processors.TemplateProcessing(
        single=single,
        pair=pair,
        special_tokens=[(tokens[i], i) for i in dict.fromkeys(added.values())],
    )
    return post_processors.Sequence([byte_level, template])


def _named_special_tokens(file: GgufFile, tokens: list[str]) -> dict[str, str]:
    names = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}
    ids = {ours: file.get(f"{_PREFIX}.{theirs}_token_id") for ours, theirs in names.items()}
    for name, token in ids.items():
        if token is not None and token >= len(tokens):
            raise file.error(
                f"its {name} token has the id {token}, but it has {len(tokens)} tokens",
                "The file is damaged; download it again.",
            )
    return {f"{name}_token": tokens[i] for name, i in ids.items() if i is not None}
