"""Writes what `docs/dev/access.md` prints of the tables; `make access` runs it behind what writes them."""

from tests.access import page


def test_write() -> None:
    page.PLACE.write_text(page.text(), encoding="utf-8")
