"""Search of all text and names for words of a private dialect; `plain_words.txt` lists them with their replacements.

`python -m tests.wording.plain_words` prints each place, and fails where there is one.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.architecture.sources import ROOT, files, shown

LIST = Path(__file__).with_suffix(".txt")
NAMED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# Pictures, keys, and records that tests write from the code.
NO_TEXT = {".png", ".pem", ".sql", ".txt", ".csv"}
MARKUP = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#|#\}|<[a-z/!][^>]*?>", re.DOTALL)
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Rules:
    """Expressions with their replacements, for all text and for names only, and the phrases that are allowed."""

    everywhere: dict[re.Pattern[str], str]
    names: dict[re.Pattern[str], str]
    allowed: re.Pattern[str]


def expression(text: str) -> re.Pattern[str]:
    """Return the expression for whole words; parts of identifiers and of addresses are not words of a text."""
    spaced = text.replace(" ", r"\s+")
    return re.compile(rf"(?<![\w./@-])(?:{spaced})(?![\w@-])", re.IGNORECASE)


def read_rules(text: str) -> Rules:
    sections: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("["):
            section = sections.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            section.append(line)
    everywhere, names = (
        {expression(words): instead for words, _, instead in (line.partition(" => ") for line in sections[section])}
        for section in ("everywhere", "names")
    )
    return Rules(everywhere, everywhere | names, expression("|".join(sections["allowed"])))


def words(name: str) -> str:
    """Return the words of an identifier, of `snake_case` and `CamelCase`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_+", " ", name).strip()


def python_parts(source: str) -> Iterator[tuple[int, str, bool]]:
    """Yield line, text and whether it is a name, of each comment, docstring, sentence and defined name."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string, False
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield node.lineno, CODE.sub(" ", node.value), False
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, words(node.name), True
        elif isinstance(node, ast.arg):
            yield node.lineno, words(node.arg), True
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, words(node.id), True
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, words(node.attr), True


def quoted(text: str) -> str:
    """Return the quoted texts with a space in a tag or a line of JSON, such as labels and descriptions."""
    return ". ".join(part for part in re.findall(r'"((?:[^"\\\n]|\\.)*)"', text) if " " in part)


def parts(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield line, text and whether it is a name, of each part of the file that people read."""
    yield 0, words(path.stem), True
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from python_parts(text)
    elif path.suffix == ".json":
        yield from ((number, quoted(line), False) for number, line in enumerate(text.splitlines(), 1))
    else:
        markup = CODE if path.suffix == ".md" else MARKUP
        yield 1, markup.sub(lambda found: f" {quoted(found[0])} " + "\n" * found[0].count("\n"), text), False


def dialect(found: Iterator[tuple[int, str, bool]], rules: Rules) -> Iterator[str]:
    """Yield line, words and replacement of each place where the parts break a rule."""
    for line, text, is_name in found:
        checked = rules.allowed.sub(lambda phrase: "." * len(phrase[0]), text)
        for pattern, instead in (rules.names if is_name else rules.everywhere).items():
            for match in pattern.finditer(checked):
                lines_before = text[: match.start()].count("\n")
                yield f"{line + lines_before}: “{match[0]}”; write: {instead}"


def places() -> list[str]:
    """Return each place in the repository, as `path:line: “words”; write: replacement`."""
    rules = read_rules(LIST.read_text(encoding="utf-8"))
    paths = [path for path in files(ROOT) if path.suffix not in NO_TEXT]
    return [f"{shown(path)}:{place}" for path in paths for place in dialect(parts(path), rules)]


if __name__ == "__main__":
    wrong = places()
    sys.exit("\n".join(wrong) or 0)
