"""mkdocs hooks for the documentation that the product serves at `/docs/`."""

import re
from hashlib import sha256
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

CHANGELOG = Path(__file__).parents[2] / "CHANGELOG.md"
SCRIPTS = "assets/inline"
# A link to a file that the repository has and the site has not.
OUTSIDE_LINK = re.compile(
    r"\[([^\]]+)\]\((?:\.\./)+(?:agents|bench|examples|fleet|tests|LICENSE|README|SECURITY)\b[^)]*\)"
)


def on_config(config: Any) -> Any:
    """Set the version that the pages show: the newest one in the changelog."""
    found = re.search(r"(?m)^## (\d+\.\d+\.\d+) \(", CHANGELOG.read_text(encoding="utf-8"))
    config.site_name = f"Drydock {found[1]}" if found else "Drydock"
    return config


def on_files(files: Any, *, config: Any) -> Any:
    """Add the changelog, which lies outside the documentation's folder."""
    text = CHANGELOG.read_text(encoding="utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "changelog.md", content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Link to the site's own changelog page, and replace links to other files of the repository by their text."""
    return OUTSIDE_LINK.sub(r"\1", re.sub(r"\]\((?:\.\./)((?:\.\./)*)CHANGELOG\.md", r"](\1changelog.md", markdown))


def on_post_page(output: str, *, page: Any, config: Any) -> str:
    """Move the theme's inline scripts into files, because the content security policy allows only scripts from
    files.
    """

    def as_file(script: re.Match[str]) -> str:
        name = f"{sha256(script[1].encode()).hexdigest()[:16]}.js"
        path = Path(config.site_dir, SCRIPTS, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script[1], encoding="utf-8")
        return f'<script src="{"../" * page.url.count("/")}{SCRIPTS}/{name}"></script>'

    return re.sub(r"(?s)<script>(.*?)</script>", as_file, output)


def on_post_build(*, config: Any) -> None:
    """Remove the theme's 404 page, because the product has its own."""
    Path(config.site_dir, "404.html").unlink()
