"""What the backend's processes print: one line per event, for people or as JSON, from structlog and stdlib alike."""

from __future__ import annotations

from typing import Any

import structlog
from structlog.typing import Processor

COMMON: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def logging_config(*, level: str, style: str) -> dict[str, Any]:
    """The dictionary for Django's LOGGING. `style` is "text" or "json"."""
    # No colour: it would end up in files, where most of these lines are read.
    text: list[Processor] = [structlog.dev.ConsoleRenderer(colors=False)]
    json: list[Processor] = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": COMMON,
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    *(json if style == "json" else text),
                ],
            },
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            # Django's own handler mails errors and prints each request; this line is enough.
            "django": {"handlers": [], "level": level, "propagate": True},
            "django.server": {"handlers": [], "level": level, "propagate": True},
            # One line for each task that beat sends every two seconds says nothing.
            "celery.beat": {"level": "WARNING"},
            "celery.worker.strategy": {"level": "WARNING"},
            "celery.app.trace": {"level": "WARNING"},
        },
    }


def configure_structlog() -> None:
    """Sends structlog's own lines through the handlers of `logging_config`."""
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *COMMON, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
