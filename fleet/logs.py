"""Log output of the backend's processes: one line for each event, as text or JSON, from structlog and `logging`.

In JSON mode all output has this form: Python's warnings and uncaught errors, the server's main process (which does not
load Django), and Celery's messages.
"""

import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import structlog
from structlog.typing import EventDict, Processor

from fleet.configuration import table

COMMON: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
]
# What each line begins with.
HEAD = ("time", "level", "logger", "event", "request_id", "trace_id")
# Characters of one field; of an exception the end, which is the most useful part. Together less than collectors accept
# in one line.
MOST_CHARACTERS = 2_000
MOST_OF_AN_EXCEPTION = 8_000
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
PLAIN = (str, int, float, bool, type(None))
EXCEPTION = "exception"


def bounded(_: Any, __: str, said: EventDict) -> EventDict:
    """Return the log line with each field cut to a maximum length."""
    for name, value in said.items():
        if name == EXCEPTION:
            said[name] = value if len(value) <= MOST_OF_AN_EXCEPTION else f"…{value[-MOST_OF_AN_EXCEPTION:]}"
            continue
        text = value if isinstance(value, str) else "" if isinstance(value, PLAIN) else repr(value)
        if len(text) > MOST_CHARACTERS:
            said[name] = f"{text[:MOST_CHARACTERS]}…"
    return said


def in_order(_: Any, __: str, said: EventDict) -> EventDict:
    """Return the log line with the common fields first."""
    return {name: said[name] for name in HEAD if name in said} | {
        name: value for name, value in said.items() if name not in HEAD
    }


def without_controls(_: Any, __: str, said: EventDict) -> EventDict:
    """Return the line with control characters escaped, so that a text line stays one line on a terminal. JSON escapes
    them itself.
    """
    for name, value in said.items():
        if isinstance(value, str):
            said[name] = CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), value)
    return said


def processors(style: str) -> list[Processor]:
    """Return the structlog processors of a log line; `style` is "text" or "json"."""
    last: list[Processor]
    if style == "json":
        last = [structlog.processors.format_exc_info, bounded, in_order, structlog.processors.JSONRenderer()]
    else:
        # No colour: it would end up in files, where most of these lines are read.
        last = [bounded, without_controls, structlog.dev.ConsoleRenderer(colors=False, timestamp_key="time")]
    return [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last]


def line(style: str) -> logging.Formatter:
    """Return the formatter of all log lines; `style` is "text" or "json"."""
    return structlog.stdlib.ProcessorFormatter(foreign_pre_chain=COMMON, processors=processors(style))


def line_as_set() -> logging.Formatter:
    """Return the formatter for the server's main process, which does not load Django's settings; `fleet/granian.json`
    names it.
    """
    # The settings report whether it can be used at all.
    style = "json" if table["LOG_FORMAT"].text(os.environ) == "json" else "text"
    say_all_in(style)
    return line(style)


class WithoutPath(logging.Filter):
    """Log filter that removes the path from Django's messages, because some paths contain secrets. The request id
    remains.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        path = getattr(getattr(record, "request", None), "path", "")
        if path:
            record.msg, record.args = record.getMessage().replace(path, "").rstrip(": "), ()
        return True


# Pauses between lines about the same fault, in seconds. After this time without it, the fault is a new one.
FIRST_PAUSE = 10.0
LONGEST_PAUSE = 600.0
FAULT_OVER = 120.0
# Celery's texts for faults are constants; this bounds the memory if one of them is not.
MOST_FAULTS = 100


@dataclass(slots=True)
class Fault:
    """A fault that repeats: when it last occurred, when its next line may be logged, and how many were omitted."""

    last_at: float
    next_line_at: float
    pause: float = FIRST_PAUSE
    omitted: int = 0


class GrowingPauses(logging.Filter):
    """Log filter for faults that repeat while a server is unavailable, known by their text without values.

    The first line is logged in full, later ones short, with growing pauses, and with the number of omitted lines.
    """

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._seconds = seconds
        self._faults: dict[str, Fault] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        now, text = self._seconds(), str(record.msg)
        fault = self._faults.get(text)
        if fault is None or now - fault.last_at > FAULT_OVER:
            if len(self._faults) >= MOST_FAULTS:
                self._faults.clear()
            self._faults[text] = Fault(now, now + FIRST_PAUSE)
            return True
        fault.last_at = now
        if now < fault.next_line_at:
            fault.omitted += 1
            return False
        fault.pause = min(2 * fault.pause, LONGEST_PAUSE)
        fault.next_line_at = now + fault.pause
        first_line = record.getMessage().partition("\n")[0]
        omitted = f" ({fault.omitted} more of these since the last such line)" if fault.omitted else ""
        record.msg, record.args = f"{first_line}{omitted}", ()
        record.exc_info = record.exc_text = None
        fault.omitted = 0
        return True


# The one filter of this process: the settings may configure logging twice.
growing_pauses = GrowingPauses()


class Lines(logging.StreamHandler[Any]):
    """Log handler for standard error. For a record that cannot be formatted it writes a line about that, without a
    traceback.
    """

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's own name
        error = sys.exc_info()[1]
        odd = logging.LogRecord(__name__, logging.ERROR, record.pathname, record.lineno, "log.unwritable", (), None)
        odd.msg = f"log.unwritable: {type(error).__name__} in {record.name}, line {record.lineno}"
        # Standard error may be gone: then no line can be written.
        with suppress(OSError, ValueError):
            self.stream.write(self.format(odd) + self.terminator)


def logging_config(*, level: str, style: str) -> dict[str, Any]:
    """Return the value of Django's LOGGING. `style` is "text" or "json"."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": line, "style": style}},
        "filters": {"without_path": {"()": WithoutPath}, "growing_pauses": {"()": lambda: growing_pauses}},
        "handlers": {"stderr": {"()": Lines, "formatter": "line", "filters": ["without_path"]}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            # Django's own handler mails errors and prints each request; this line is enough.
            "django": {"handlers": [], "level": level, "propagate": True},
            "django.server": {"handlers": [], "level": level, "propagate": True},
            # The access log has the refusals; this logger adds exceptions.
            "django.request": {"level": "ERROR"},
            # It writes whole addresses, and in some there are keys.
            "urllib3": {"level": "INFO"},
            # One line for each task that beat sends every two seconds says nothing. Without Redis each of them would be
            # an error with a stack.
            "celery.beat": {"level": "WARNING", "filters": ["growing_pauses"]},
            "celery.worker.consumer.consumer": {"filters": ["growing_pauses"]},
            "celery.worker.strategy": {"level": "WARNING"},
            "celery.app.trace": {"level": "WARNING"},
        },
    }


def configure_structlog() -> None:
    """Send structlog's lines through the handlers of `logging_config`."""
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *COMMON, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def say_all_in(style: str) -> None:
    """Turn Python's warnings and uncaught errors into log lines if `style` is "json"."""
    if style != "json":
        return
    if not logging.getLogger().handlers:
        # Until the settings are read: a wrong one is a line, too.
        first = Lines()
        first.setFormatter(line(style))
        logging.getLogger().addHandler(first)
    logging.captureWarnings(capture=True)
    said = logging.getLogger("python")

    def raised(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            return
        said.critical("uncaught: %s", error, exc_info=(kind, error, trace))

    def raised_in_a_thread(found: threading.ExceptHookArgs) -> None:
        if found.exc_value is not None:
            raised(found.exc_type, found.exc_value, found.exc_traceback)

    def unraisable(found: Any) -> None:
        said.error("unraisable: %s", found.err_msg or found.exc_value)

    sys.excepthook = raised
    threading.excepthook = raised_in_a_thread
    sys.unraisablehook = unraisable


def line_of(style: str) -> Callable[[str], str]:
    """Return a function that formats one log line without a handler, because a signal handler must not use
    `logging`.
    """
    form = line(style)
    return lambda words: form.format(logging.LogRecord("celery", logging.INFO, "", 0, words.strip(), (), None))
