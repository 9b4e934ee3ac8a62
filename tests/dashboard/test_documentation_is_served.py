"""The documentation at `/docs/`: every page, without signing in, within the content security policy."""

import re
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

SITE = Path(settings.WHITENOISE_ROOT)
PAGES = sorted((SITE / "docs").rglob("*.html"))


def test_the_start_page_names_the_version() -> None:
    newest = re.search(r"^## (\d+\.\d+\.\d+)", (settings.BASE_DIR / "CHANGELOG.md").read_text(), re.MULTILINE)
    answer = Client().get("/docs/")
    assert answer.status_code == 200
    assert newest and f"<title>Drydock {newest[1]}</title>" in b"".join(answer.streaming_content).decode()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(SITE)))
def test_a_page_holds_nothing_that_the_policy_forbids_or_that_is_loaded_from_elsewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert (
        re.findall(r"<script>|<style\b|\sstyle=|\son[a-z]+=", re.sub(r"<code>.*?</code>", "", text, flags=re.DOTALL))
        == []
    )
    assert re.findall(r"<(?:script|link|img)\b[^>]*(?:src|href)=\"?(?:https?:)?//", text) == []
