"""A picture of the documentation is taken by a test, committed, and shown by a document; none is left over."""

import re

from tests.architecture.sources import ROOT
from tests.browser.test_pictures import PICTURES

FOLDER = ROOT / "docs" / "screenshots"
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def named() -> set[str]:
    """The pictures that documents show."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)
    return set(re.findall(r"screenshots/([\w.-]+)\)", text))


def test_files_and_documents_name_the_same_pictures() -> None:
    assert {path.name for path in FOLDER.iterdir()} == named()


def test_every_picture_is_taken_by_a_test() -> None:
    assert {f"{picture.name}.png" for picture in PICTURES} == named()


def test_every_picture_has_a_description() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)
    assert [alt for alt in re.findall(r"!\[([^\]]*)\]\([^)]*screenshots/", text) if len(alt) < 20] == []
