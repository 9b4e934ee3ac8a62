"""Version of this agent."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def agent_version() -> str:
    """Return the version of the installed package, or `0` if the agent runs from a source tree."""
    try:
        return version("drydock-agent")
    except PackageNotFoundError:
        return "0"


def user_agent() -> str:
    """Return the User-Agent header of all requests."""
    return f"drydock-agent/{agent_version()}"
