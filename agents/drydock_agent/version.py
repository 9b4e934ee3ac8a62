"""Which release this is."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def agent_version() -> str:
    """The version of the installed distribution; `0` where the agent runs from a bare source tree."""
    try:
        return version("drydock-agent")
    except PackageNotFoundError:
        return "0"


def user_agent() -> str:
    """Return the agent's name in every request."""
    return f"drydock-agent/{agent_version()}"
