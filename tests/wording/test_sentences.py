"""Texts of the product: one file, which a command renews, holds all of them; `make lint` finds words of a dialect."""

import os
from pathlib import Path

import pytest

from tests.wording import plain_words
from tests.wording.tables import entries, sentences, tables

SNAPSHOT = Path(__file__).with_name("sentences.txt")
PARTS = (("Reasons", sentences), ("Entries of the timeline", entries), ("Labels and other texts", tables))


def snapshot() -> str:
    return "\n".join("\n".join([f"# {head}", "", *lines(), ""]) for head, lines in PARTS)


def test_every_text_is_as_it_was_last_read() -> None:
    text = snapshot()
    if os.environ.get("RENEW_SENTENCES"):
        SNAPSHOT.write_text(text, encoding="utf-8")
    assert text == SNAPSHOT.read_text(encoding="utf-8"), "read the difference after `make sentences`, and commit it"


@pytest.mark.parametrize(
    "name, planted",
    [
        ("page.html", "<p>It is {0} {{% if x %}}\nthen.</p>"),
        ("page.html", '<nav class="a" aria-label="All {0} of it">'),
        ("guide.md", "# Guide\n\nA page {0} says."),
        ("data.json", '{{"title": "All {0} of it"}}'),
        ("text.py", 'TEXT = "All {0} of it"\n'),
        ("docs.py", '"""A module.\n\nAll {0} of it."""\n'),
        ("comment.py", "x = 1  # All {0} of it\n"),
        ("function.py", "def test_{0}_waits(): pass\n"),
        ("variable.py", "all_{0} = 1\n"),
        ("test_{0}_waits.py", ""),
    ],
)
def test_planted_word_is_found(tmp_path: Path, name: str, planted: str) -> None:
    rules = plain_words.read_rules(plain_words.LIST.read_text(encoding="utf-8"))
    word = "any" + "body"
    path = tmp_path / name.format(word)
    path.write_text(planted.format(word), encoding="utf-8")
    assert len(list(plain_words.dialect(plain_words.parts(path), rules))) == 1
