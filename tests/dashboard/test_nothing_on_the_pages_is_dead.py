"""Every class that a page uses has a rule, every rule of ours a use, and every template and file its reader."""

import re
from pathlib import Path

import js_lib_bootstrap5

from fleet.dashboard import charts, tags
from fleet.notifications import labels as notifications
from fleet.wording import badges
from tests.architecture.sources import FLEET, ROOT, files

OWN = FLEET / "static" / "drydock"
TEMPLATES = [path for path in files(ROOT / "templates", ".html") if path.parent.name != "api"]
BOOTSTRAP = Path(js_lib_bootstrap5.__file__).parent / "static/js-lib-bootstrap5/css/bootstrap.min.css"
SOURCES = [*TEMPLATES, *files(OWN, ".js"), Path(tags.__file__), Path(charts.__file__)]
PAGES = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)


def classes_of(*sheets: Path) -> set[str]:
    """The classes that these style sheets have rules for."""
    text = re.sub(
        r"/\*.*?\*/|\{[^{}]*\}", "{}", "\n".join(sheet.read_text("utf-8") for sheet in sheets), flags=re.DOTALL
    )
    return set(re.findall(r"\.(-?[A-Za-z_][\w-]*)", text))


def used() -> set[str]:
    """The words in the `class` attributes of templates; a word that is put together counts as its beginning."""
    found: set[str] = set()
    for value in re.findall(r'(?:class|css)="((?:\{[{%].*?[%}]\}|[^"])*)"', PAGES):
        bare = re.sub(r"\{\{.*?\}\}", "*", re.sub(r"\{%.*?%\}", " ", value))
        found |= set(bare.replace("{}", "*").replace("{0}", "*").split())
    return found


def test_every_class_has_a_rule() -> None:
    # A script may find something by its class.
    known = classes_of(*files(OWN, ".css"), BOOTSTRAP) | {"live-word"}
    missing = [
        name
        for name in used() - {"*"}
        if not (any(one.startswith(name.rstrip("*")) for one in known) if name.endswith("*") else name in known)
    ]
    assert sorted(missing) == []


def test_every_rule_of_ours_has_a_use() -> None:
    tones = {look.tone for table in badges.BY_KIND.values() for look in table.values()}
    words = set(re.findall(r"[\w-]+", PAGES)) | {f"{begin}-{tone}" for begin in ("tone", "tile") for tone in tones}
    beginnings = [name.rstrip("*") for name in used() if name.endswith("*") and name != "*"]
    dead = [
        name
        for name in classes_of(*files(OWN, ".css")) - words
        if not any(name.startswith(begin) for begin in beginnings)
    ]
    assert sorted(dead) == []


def test_every_template_and_file_is_named_somewhere() -> None:
    python = "\n".join(path.read_text(encoding="utf-8") for path in files(FLEET, ".py"))
    found = [path.relative_to(ROOT / "templates").as_posix() for path in TEMPLATES]
    known = {"404.html", "403.html", "account/login.html", "mfa/authenticate.html"}
    assert [name for name in found if name not in known and f'"{name}"' not in PAGES + python] == []
    assert [path.name for path in files(OWN) if path.name not in PAGES] == []


def test_every_tag_and_filter_is_used() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in TEMPLATES)
    unused = [name for name in tags.register.tags if not re.search(rf"\{{% {name}\b", text)]
    filters = [*tags.register.filters, *notifications.register.filters]
    assert unused + [name for name in filters if f"|{name}" not in text] == []


def test_pages_say_leave_to_azure_and_never_hold() -> None:
    said = [re.sub(r"\{[{%].*?[%}]\}|<[^>]*>", " ", path.read_text(encoding="utf-8")) for path in TEMPLATES]
    assert [text for text in said if re.search(r"\b(?<!agent )(hold|holds|held|holding)\b", text, re.IGNORECASE)] == []
    assert any("Leave to Azure" in text for text in said)
