"""Habits of the code that a reader relies on."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

from celery import current_app, signals

from tests.architecture.sources import AGENTS, FLEET, ROOT, files, imports, module_name, shown, tree


def sources() -> list[Path]:
    return [path for folder in (FLEET, AGENTS) for path in files(folder, ".py") if "migrations" not in path.parts]


def test_requirements_with_extras_are_pinned_with_the_same_extras() -> None:
    """pip with `--require-hashes` refuses any other pin when the index has a newer release."""
    pinned = (ROOT / "requirements" / "base.txt").read_text(encoding="utf-8").replace(", ", ",")
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    with_extras = [one.partition("]")[0] + "]" for one in needed if "[" in one]
    assert with_extras and [one for one in with_extras if f"\n{one}==" not in pinned] == []


def test_allauth_is_used_by_its_public_modules() -> None:
    wrong = [
        f"{shown(path)}:{item.line} imports {item.module}"
        for path in [*files(FLEET, ".py"), *files(ROOT / "tests", ".py"), *files(ROOT / "bench", ".py")]
        for item in imports(path)
        if item.module.startswith("allauth.") and "internal" in item.module.split(".")
    ]
    assert wrong == []


def test_no_comment_puts_work_off() -> None:
    marks = ("TO" + "DO", "FIX" + "ME", "XX" + "X")
    wrong = [
        f"{shown(path)}:{number}"
        for path in [*sources(), *files(ROOT / "tests", ".py"), *files(ROOT / "templates", ".html")]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if any(mark in line for mark in marks)
    ]
    assert wrong == []


def test_tests_play_coroutines_where_no_other_loop_runs() -> None:
    """Tests of the browser leave a loop running in their thread, and whichever file comes after them finds it."""
    call = "asyncio" + ".run("
    found = [shown(path) for path in files(ROOT / "tests", ".py") if call in path.read_text(encoding="utf-8")]
    assert found == []


def test_collecting_the_tests_leaves_drydocks_celery_the_current_one() -> None:
    assert current_app.main == "fleet"


def signal_handlers(path: Path) -> Iterator[tuple[str, str]]:
    """Return the Celery signal and the name of each function that a decorator connects to one."""
    for node in ast.walk(tree(path)):
        for decorator in getattr(node, "decorator_list", ()):
            if isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Attribute):
                signal = ast.unparse(decorator.func.value).rpartition(".")[2]
                if decorator.func.attr == "connect" and hasattr(signals, signal):
                    yield signal, f"{module_name(path, ROOT)}.{node.name}"  # type: ignore[attr-defined]


def test_every_celery_signal_handler_is_connected() -> None:
    """Two handlers of one signal with the same `dispatch_uid` would be one: the second is ignored."""
    current_app.loader.import_default_modules()
    expected = {found for path in files(FLEET, ".py") for found in signal_handlers(path)}
    connected = [
        (signal, f"{handler.__module__}.{handler.__name__}", uid)
        for signal in {signal for signal, _ in expected}
        for (uid, _), reference in getattr(signals, signal).receivers
        if (handler := reference()).__module__.startswith("fleet.")
    ]
    assert len(expected) > 10
    assert expected == {(signal, handler) for signal, handler, _ in connected}
    assert [handler for _, handler, uid in connected if not isinstance(uid, str)] == []


# Who reads the clock of the process: what compares it with the database's, and what concerns this server alone.
READ_THE_OWN_CLOCK = {
    "fleet/operations/clock.py": "it compares the two clocks",
    "fleet/embedded/folder.py": "the age of a file on this server",
}
OWN_CLOCK = ("timezone.now(", "datetime.now(", "datetime.utcnow(", "time.time(")


def test_the_backend_takes_its_time_from_the_databases_clock() -> None:
    found = {
        shown(path)
        for path in files(FLEET, ".py")
        if "migrations" not in path.parts
        and any(call in path.read_text(encoding="utf-8").replace("clock.now(", "") for call in OWN_CLOCK)
    }
    assert found == set(READ_THE_OWN_CLOCK)
