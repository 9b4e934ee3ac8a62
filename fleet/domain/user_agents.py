"""Browsers and systems, as far as what a browser says of itself tells them. It may say anything: no word of it is kept,
only names out of these tables.
"""

from dataclasses import dataclass

# Nobody says more of itself than this in truth.
MOST_READ = 400
# The first that is found counts: nearly everybody claims to be Chrome or Safari as well.
BROWSERS = (
    ("Edg/", "Edge"),
    ("EdgA/", "Edge"),
    ("EdgiOS/", "Edge"),
    ("OPR/", "Opera"),
    ("Vivaldi/", "Vivaldi"),
    ("SamsungBrowser/", "Samsung Internet"),
    ("FxiOS/", "Firefox"),
    ("Firefox/", "Firefox"),
    ("CriOS/", "Chrome"),
    ("HeadlessChrome/", "Chromium"),
    ("Chromium/", "Chromium"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
    ("python-requests/", "a Python program"),
    ("Python-urllib/", "a Python program"),
)
SYSTEMS = (
    ("Android", "Android"),
    ("iPhone", "iOS"),
    ("iPad", "iPadOS"),
    ("CrOS", "ChromeOS"),
    ("Windows", "Windows"),
    ("Macintosh", "macOS"),
    ("Linux", "Linux"),
)


@dataclass(frozen=True, slots=True)
class Browser:
    """Names of a browser and of the system that it runs on; empty where nothing tells them."""

    browser: str = ""
    system: str = ""


def browser_of(said: str) -> Browser:
    """What this header `User-Agent` tells."""
    read = said[:MOST_READ]
    return Browser(_first(BROWSERS, read), _first(SYSTEMS, read))


def _first(names: tuple[tuple[str, str], ...], said: str) -> str:
    return next((name for sign, name in names if sign in said), "")
