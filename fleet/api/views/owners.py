"""What calls about one's own have in common: channels, routes and the log of messages."""

from typing import Any

from fleet.api.calls import Call

NEEDS = "The installation's are for admins, with the scope `admin`; one's own need more than the scope `read`."


class ByOwner(Call):
    """What the calls here have in common: whoever calls is a person, with a token or without one."""

    @property
    def carried(self) -> Any:
        """The token of this call; None for a session."""
        return self.request.auth

    @property
    def acting(self) -> dict[str, Any]:
        return {"actor": self.actor, "now": self.now, "carried": self.carried}

    @property
    def deciding(self) -> dict[str, Any]:
        """The same for calls that may ask for a version."""
        return {**self.acting, "expected": self.expected}
