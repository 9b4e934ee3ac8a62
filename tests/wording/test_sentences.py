"""Texts of the product: one file, which a command renews, holds every label and sentence; no other test pins one."""

import os
from pathlib import Path

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
