"""Forty prompts of mixed length, from one token to 1,500, with unicode and chat."""

from __future__ import annotations

from collections.abc import Callable

TEXTS = [
    "A",
    "Hello",
    "The capital of France is",
    "1 + 1 = 2. 2 + 2 =",
    "def fibonacci(n):\n    ",
    "Once upon a time, in a village by the sea,",
    "Q: What is the boiling point of water?\nA:",
    "The quick brown fox jumps over the lazy dog. " * 3,
    "Die Würde des Menschen ist unantastbar. Sie zu achten",
    "L'été dernier, à Besançon, nous avons mangé des crêpes",
    "東京は日本の首都です。人口は",
    "Привет, как дела? Сегодня хорошая погода и",
    "😀😃😄 emoji are 👩‍👩‍👧‍👦 and 🏳️‍🌈, and then",
    "é è ñ combining: e\u0301 a\u0308 o\u0302",
    "\n\n\n",
    "    indented\n\ttabbed\r\nlines",
    "import numpy as np\n\nx = np.zeros((3, 4))\nprint(x.shape)\n",
    "SELECT name, COUNT(*) FROM users GROUP BY",
    "Roses are red,\nViolets are blue,\n",
    "List of planets: Mercury, Venus, Earth,",
    "3.14159 26535 89793 23846",
    '{"name": "Ada", "age": 36, "languages": ["',
    "The answer to life, the universe and everything is",
    "<html><head><title>Test</title></head><body>",
]

SENTENCES = (
    "A small engine schedules requests and keeps their blocks. ",
    "Water flows down from the hills into the valley, ",
    "and in the year 1847 a railway was built across it. ",
    "Some of the passengers were merchants; others were poets. ",
    "Nobody knew why the clock in the square always showed noon. ",
)

CHATS = [
    [{"role": "user", "content": "What is the capital of Italy?"}],
    [
        {"role": "system", "content": "You answer in one word."},
        {"role": "user", "content": "Which colour has the sky?"},
    ],
    [
        {"role": "user", "content": "Hi!"},
        {"role": "assistant", "content": "Hello, how can I help?"},
        {"role": "user", "content": "Name three fruits."},
    ],
    [{"role": "user", "content": "Übersetze ins Englische: Guten Morgen 🌞"}],
]

LENGTHS = (1, 2, 15, 16, 17, 31, 33, 64, 100, 255, 600, 1500)
"""Token counts of prompts cut from running text; each begins at another sentence."""


def forty_prompts(
    encode: Callable[[str], list[int]], chat: Callable[[list[dict[str, str]]], list[int]]
) -> list[list[int]]:
    """Token ids of all prompts."""
    prompts = [encode(text) for text in TEXTS] + [chat(messages) for messages in CHATS]
    for index, length in enumerate(LENGTHS):
        start = index % len(SENTENCES)
        running = "".join(SENTENCES[start:] + SENTENCES[:start]) * (1 + length // 40)
        prompts.append(encode(f"{index}. {running}")[:length])
    assert len(prompts) == 40
    return prompts
