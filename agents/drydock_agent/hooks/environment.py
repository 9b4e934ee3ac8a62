"""Environment variables that a hook receives."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from drydock_agent.service_manager import VARIABLES

# Longer variables are not accepted on all systems.
VARIABLE_CHARACTERS = 30000


def environment(values: Mapping[str, object]) -> dict[str, str]:
    """Return the environment for a hook: the agent's own without the agent's settings, plus `values` with the prefix
    `DRYDOCK_`.
    """
    # The agent's settings contain secrets, which hooks do not need.
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.upper().startswith("DRYDOCK_") and name not in VARIABLES
    }
    return {**inherited, **{f"DRYDOCK_{name}": _variable(value) for name, value in values.items()}}


def _variable(value: object) -> str:
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value)
    # JSON text may contain NUL characters; environment variables may not.
    return text.replace("\0", "").encode("utf-8", "replace").decode()[:VARIABLE_CHARACTERS]
