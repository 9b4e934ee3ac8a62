"""Choice of the api-version: the newest that the metadata service supports.

A cloud that lags answers 400 to a version that it does not know, and may name others. Source of the versions:
https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events (page of 2023-01-25).
"""

from __future__ import annotations

import json
import re

from drydock_agent.clock import Clock

# Newest first.
EVENTS_VERSIONS = (
    "2024-07-09",
    "2020-07-01",
    "2019-08-01",
    "2019-04-01",
    "2019-01-01",
    "2017-11-01",
    "2017-08-01",
    "2017-03-01",
)
INSTANCE_VERSIONS = ("2020-09-01", "2019-08-01", "2017-12-01")

# Retry the newest version, because the cloud may have been updated.
RETRY_NEWEST_SECONDS = 24 * 3600.0

_VERSION = re.compile(r"20\d\d-\d\d-\d\d")


class Versions:
    """The version in use, shared by all clients of the service.

    It begins with the newest, and retries it a day after stepping down. `remembered` is the version of an earlier run,
    used directly after the first refusal.
    """

    def __init__(self, known: tuple[str, ...], clock: Clock, *, remembered: str = "") -> None:
        self.known = known
        self.remembered = remembered
        self._clock = clock
        self._current = known[0]
        self._again_at: float | None = None

    @property
    def current(self) -> str:
        """Version for the next request."""
        if self._again_at is not None and self._clock.monotonic() >= self._again_at:
            self._again_at = None
            self.remembered, self._current = self._current, self.known[0]
        return self._current

    def refused(self, version: str, body: bytes) -> bool:
        """Step down from `version`, which was answered with 400 and `body`. False when none is left: then the next
        call begins with the newest again."""
        if version != self._current:
            # Another thread has stepped down meanwhile.
            return True
        lower = self._lower(version, body)
        if lower is None:
            self._current, self._again_at, self.remembered = self.known[0], None, ""
            return False
        self._current = lower
        self._again_at = self._clock.monotonic() + RETRY_NEWEST_SECONDS
        return True

    def _lower(self, version: str, body: bytes) -> str | None:
        remembered, self.remembered = self.remembered, ""
        if remembered and remembered < version:
            return remembered
        lower = [known for known in self.known if known < version]
        named = [name for name in _named(body) if name < version]
        both = [known for known in lower if known in named]
        # One that the answer names and that is known; else the next known one; else what the answer names.
        return next(iter([*both, *lower, *named]), None)


def mentions_version(body: bytes) -> bool:
    """Return whether a 400 may be about the version, and not about a header."""
    return b"api-version" in body or b"header" not in body.lower()


def _named(body: bytes) -> list[str]:
    """The versions that the body of a 400 names, newest first."""
    try:
        content = json.loads(body.decode("utf-8-sig"), strict=False)
    except (ValueError, RecursionError):
        return []
    named = content.get("newest-versions") if isinstance(content, dict) else None
    texts = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    return sorted({text for text in texts if _VERSION.fullmatch(text)}, reverse=True)
