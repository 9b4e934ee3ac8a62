"""Accounts of the simulated directory."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import NAMESPACE_DNS, uuid5


@dataclass(slots=True)
class Account:
    """An account in the simulated directory. With more than 200 `groups`, tokens do not contain them, as at Entra ID.
    `enabled` is False if the directory no longer admits the account.
    """

    name: str
    display: str
    roles: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    enabled: bool = True

    @property
    def oid(self) -> str:
        return str(uuid5(NAMESPACE_DNS, f"oid.{self.name}.example"))

    @property
    def sub(self) -> str:
        """The `sub` claim. It differs for each client program, as at Entra ID, so that programs cannot correlate
        users.
        """
        return str(uuid5(NAMESPACE_DNS, f"sub.{self.name}.example"))

    @property
    def login_name(self) -> str:
        return f"{self.name}@contoso.example"


def everybody() -> dict[str, Account]:
    """Return the accounts that exist at start."""
    people = [
        Account("ada", "Ada Admin", roles=["Drydock.Admin"]),
        Account("anna", "Anna Approver", roles=["Drydock.Approver"]),
        Account("otto", "Otto Operator", roles=["Drydock.Operator"], groups=["0b6d1b2e-web-operators"]),
        Account("vera", "Vera Viewer", roles=["Drydock.Viewer"]),
        Account("nora", "Nora Newman"),
        Account("gus", "Gus of many groups", groups=[f"group-{number}" for number in range(250)]),
    ]
    return {one.name: one for one in people}
