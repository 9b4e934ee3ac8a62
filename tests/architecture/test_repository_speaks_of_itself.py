"""The repository works anywhere: it names no package registry and no folder of the machine it was written on."""

import re

from tests.architecture.sources import ROOT, files, shown

# Written in two halves, so that this file does not name them either.
HOSTS = "pypi .org python hosted.org npm js.org npm js.com yarn pkg.com crates .io rubygems .org proxy.golang .org"
HOSTS += " jsd elivr.net un pkg.com cdn js.com"
REGISTRIES = [first + second for first, second in zip(HOSTS.split()[::2], HOSTS.split()[1::2], strict=True)]
FOLDERS = re.compile(
    "(?<![\\w.~:}$-])/(?:" + "|".join(["wo" + "rk", "ro" + "ot", "ho" + "me", "Us" + "ers"]) + ")/[\\w.]"
)
ENDINGS = "cfg css html in js json md py sh svg toml txt yaml yml"
READ = {"", *(f".{ending}" for ending in ENDINGS.split())}


def texts() -> list[tuple[str, int, str]]:
    """Path, line number and line of every text file, hidden files of the top folder and `.ci` too."""
    found = []
    paths = [path for path in files(ROOT) if path.suffix in READ]
    paths += files(ROOT / ".ci") if (ROOT / ".ci").is_dir() else []
    for path in paths:
        # In a second work tree `.git` is a file.
        if path.name in ("LICENSE", ".git"):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            found.append((shown(path), number, line))
    return found


def test_no_file_names_a_package_registry() -> None:
    named = [f"{path}:{number}" for path, number, line in texts() if any(host in line.lower() for host in REGISTRIES)]
    assert named == []


def test_no_file_names_a_folder_of_the_machine_it_was_written_on() -> None:
    # A sample names its own author's folders.
    lines = [one for one in texts() if not one[0].startswith("tests/samples/")]
    named = [f"{path}:{number} {line.strip()[:80]}" for path, number, line in lines if FOLDERS.search(line)]
    assert named == []


def test_a_folder_of_a_machine_is_seen() -> None:
    assert FOLDERS.search('open("/ho' + 'me/ann/x")')
    assert not FOLDERS.search("/var/lib/drydock")
    assert not FOLDERS.search("https://example.org/ho" + "me/x")
