"""The text that the demo measures on, ours, and its parts."""

import re
from importlib.resources import files


def text() -> str:
    """Returns the whole text: about 1000 tokens of English prose."""
    return files("torch_mtl4.demo").joinpath("text.txt").read_text(encoding="utf-8").strip()


def sentences() -> list[str]:
    """Returns the sentences of the text."""
    return re.split(r"(?<=[.!?])\s+", text())


def prompts(count: int, words: int = 12) -> list[str]:
    """Returns the first words of the first `count` paragraphs."""
    return [" ".join(paragraph.split()[:words]) for paragraph in text().split("\n\n")[:count]]
