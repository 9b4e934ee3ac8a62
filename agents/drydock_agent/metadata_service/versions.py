"""Choice of the api-version: the newest one that the metadata service supports.

A cloud with older software rejects an unknown version with 400 or 404. It may list the supported ones in that response
or at `/metadata/versions`. Source of the versions:
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

# Seconds until the newest version is tried again, because the cloud may have been updated.
RETRY_NEWEST_SECONDS = 24 * 3600.0

_VERSION = re.compile(r"20\d\d-\d\d-\d\d")
_ABOUT_VERSION = re.compile(rb"api.?version|newest.?versions|invalid version", re.IGNORECASE)


class Versions:
    """The api-version in use, shared by all clients of the metadata service.

    It starts with the newest version. After stepping down to an older one, it tries the newest again a day later.
    `remembered` is the version of an earlier run, which is tried directly after the first rejection.
    """

    def __init__(self, known: tuple[str, ...], clock: Clock, *, remembered: str = "") -> None:
        self.known = known
        self.remembered = remembered
        self._clock = clock
        self._current = known[0]
        self._again_at: float | None = None

    @property
    def current(self) -> str:
        """The api-version for the next request."""
        if self._again_at is not None and self._clock.monotonic() >= self._again_at:
            self._again_at = None
            self.remembered, self._current = self._current, self.known[0]
        return self._current

    def refused(self, version: str, body: bytes, *, newest: str = "") -> bool:
        """Step down to an older version after `version` was rejected with 400 or 404 and this body. `newest` is the
        newest version of the service, if known. Return False if no version is left; the next call then starts with the
        newest again.
        """
        if version != self._current:
            # Another thread has stepped down meanwhile.
            return True
        lower = self._lower(version, body, newest)
        if lower is None:
            self._current, self._again_at, self.remembered = self.known[0], None, ""
            return False
        self._current = lower
        self._again_at = self._clock.monotonic() + RETRY_NEWEST_SECONDS
        return True

    def _lower(self, version: str, body: bytes, newest: str) -> str | None:
        remembered, self.remembered = self.remembered, ""
        if remembered and remembered < version:
            return remembered
        lower = [known for known in self.known if known < version and known <= (newest or version)]
        named = [name for name in _versions(body, "newest-versions") if name < version]
        both = [known for known in lower if known in named]
        # A known version that the response lists; else the next older known one; else any that the response lists.
        return next(iter([*both, *lower, *named]), None)


def is_about_version(method: str, status: int, body: bytes) -> bool:
    """Return whether an error response was caused by the api-version. A 404 may have temporary reasons, the 400 to a
    POST may be about the event, and the 400 to a GET may be about a header.
    """
    if status not in (400, 404):
        return False
    return bool(_ABOUT_VERSION.search(body)) or (status == 400 and method == "GET" and b"header" not in body.lower())


def newest_of(body: bytes) -> str:
    """Return the newest version in a response of `/metadata/versions`, or an empty string if the response is
    invalid.
    """
    return max(_versions(body, "apiVersions"), default="")


def _versions(body: bytes, name: str) -> list[str]:
    """Return the api-versions in the list `name` of a response, newest first."""
    try:
        content = json.loads(body.decode("utf-8-sig"), strict=False)
    except (ValueError, RecursionError):
        return []
    listed = content.get(name) if isinstance(content, dict) else None
    texts = [text for text in listed if isinstance(text, str)] if isinstance(listed, list) else []
    return sorted({text for text in texts if _VERSION.fullmatch(text)}, reverse=True)
