"""Only the agent's `platforms` know the operating system; the agent needs nothing but `requests`."""

import ast
import sys
from pathlib import Path

import drydock_agent

FOLDER = Path(drydock_agent.__file__).parent
FILES = sorted(FOLDER.rglob("*.py"))
# The one file of each extra that imports what the extra brings.
EXTRAS = {"redis/subscription.py": {"redis"}, "backend/ed25519.py": {"cryptography"}}
# What Python reads TOML with, by itself or before it could.
EXTRAS |= {"settings/load.py": {"tomllib", "tomli"}}
# Modules of pywin32, which only Windows has.
WINDOWS_ONLY = {
    "ntsecuritycon", "pywintypes", "servicemanager", "win32api", "win32con", "win32event", "win32file", "win32job",
    "win32pipe", "win32process", "win32security", "win32service", "win32serviceutil", "winerror", "winnt",
}  # fmt: skip

POSIX_ONLY = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
# Attributes of modules that exist on some systems only.
POSIX_NAMES = {
    "os": {"fork", "geteuid", "getpgid", "getuid", "kill", "killpg", "mkfifo", "setsid", "uname", "fchmod", "chown"},
    "signal": {"SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCHLD", "pthread_sigmask", "set_wakeup_fd"},
    "socket": {"AF_UNIX", "SO_REUSEPORT"},
    "time": {"tzset", "clock_gettime"},
}


def name(path: Path) -> str:
    return path.relative_to(FOLDER).as_posix()


def imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found - {"drydock_agent"}


def is_of(platform: str, path: Path) -> bool:
    return name(path).removeprefix("platforms/").startswith(platform)


def test_nothing_posix_only_is_imported_or_used() -> None:
    assert {"__main__.py", "loop.py", "spool/store.py", "wire.py"} <= {name(path) for path in FILES}
    for path in FILES:
        used = {
            f"{node.value.id}.{node.attr}"
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.attr in POSIX_NAMES.get(node.value.id, ())
        }
        assert is_of("posix", path) or not (used | imported(path) & POSIX_ONLY), name(path)


def test_no_other_module_asks_for_the_platform_or_needs_more_than_requests_brings() -> None:
    for path in FILES:
        extra = EXTRAS.get(name(path), set()) | (WINDOWS_ONLY if is_of("windows", path) else set())
        assert imported(path) - set(sys.stdlib_module_names) <= {"requests", "urllib3"} | extra, name(path)
        # macOS is a POSIX system, and the oldest Python brings no TOML.
        text = path.read_text("utf-8").replace('sys.platform == "darwin"', "")
        asks = [word for word in ("sys.platform", "os.name", "platform.system") if word in text]
        assert asks == [] or name(path) == "platforms/__init__.py", name(path)
