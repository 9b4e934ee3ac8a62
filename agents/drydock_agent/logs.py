"""Logging to standard error: one line per event, as text or JSON, of bounded length."""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import time
from contextlib import suppress
from datetime import datetime, timezone
from types import TracebackType
from typing import Any

FORMATS = ("text", "json")
# Fields that a caller may pass as `extra`.
FIELDS = ("request_id", "trace_id", "order_id")
MAX_CHARACTERS = 2_000
MAX_EXCEPTION_CHARACTERS = 8_000
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
UTC = timezone.utc

log = logging.getLogger("drydock_agent")


class TextFormatter(logging.Formatter):
    """Formatter of log lines as text: `time LEVEL sentence`, then the fields. An exception follows on the next
    lines.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
        self.converter = time.gmtime

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        return _escape_controls(_truncate(super().formatMessage(record)) + fields)


class JsonFormatter(logging.Formatter):
    """Formatter of log lines as JSON, one object a line: `time`, `level`, `logger`, `event` (the sentence), the fields,
    `exception`.
    """

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _truncate(record.getMessage()),
            **_fields(record),
        }
        if record.exc_info and record.exc_info[0] is not None:
            entry["exception"] = self.formatException(record.exc_info)[-MAX_EXCEPTION_CHARACTERS:]
        return json.dumps(entry)


class StderrHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Handler for standard error. It replaces characters that cannot be written, and prints no traceback of the module
    `logging`.
    """

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's own name
        # Standard error may be closed.
        with suppress(OSError, ValueError):
            self.stream.write(self.format(_unwritable(record)) + self.terminator)


def log_to_stderr(level: str, style: str) -> None:
    """Configure logging to standard error at this level, as `text` or `json`. This includes libraries and uncaught
    exceptions.
    """
    root = logging.getLogger()
    # Before the settings were loaded, another style may have been used.
    handler = next((one for one in root.handlers if isinstance(one, StderrHandler)), None) or StderrHandler()
    handler.setFormatter(formatter(style))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    if handler in root.handlers:
        root.setLevel(level.upper())
    logging.getLogger("urllib3").setLevel(logging.WARNING)
    if style == "json":
        log_uncaught_errors()


def formatter(style: str) -> logging.Formatter:
    """Return the formatter of this style, `text` or `json`."""
    return JsonFormatter() if style == "json" else TextFormatter()


def log_uncaught_errors() -> None:
    """Log warnings of Python and exceptions that end a thread."""
    logging.captureWarnings(capture=True)

    def raised(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            log.critical("Uncaught: %s.", error, exc_info=(kind, error, trace))

    def raised_in_a_thread(found: threading.ExceptHookArgs) -> None:
        if found.exc_value is not None:
            raised(found.exc_type, found.exc_value, found.exc_traceback)

    sys.excepthook = raised
    threading.excepthook = raised_in_a_thread


def _unwritable(record: logging.LogRecord) -> logging.LogRecord:
    words = f"A line of {record.name} could not be written (line {record.lineno})."
    return logging.LogRecord(record.name, logging.ERROR, record.pathname, record.lineno, words, (), None)


def _fields(record: logging.LogRecord) -> dict[str, str]:
    found = {name: getattr(record, name, "") for name in FIELDS}
    return {name: _truncate(str(value)) for name, value in found.items() if value}


def _truncate(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"


def _escape_controls(text: str) -> str:
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)
