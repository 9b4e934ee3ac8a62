"""Second factors of people, as they see them: never a secret."""

from dataclasses import dataclass
from datetime import datetime

from allauth.mfa.models import Authenticator

from fleet.projections.visibility import seen

APP, PASSKEY = "totp", "webauthn"


@dataclass(frozen=True, slots=True)
class Factor:
    """One factor: `kind` is `totp` or `webauthn`, `name` what its person calls a passkey."""

    id: int
    kind: str
    name: str
    created_at: datetime
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True)
class Factors:
    """What somebody has beside a password. `codes_left` are recovery codes that were not used."""

    app: Factor | None
    passkeys: tuple[Factor, ...]
    codes_left: int

    @property
    def usable(self) -> bool:
        return self.app is not None or bool(self.passkeys)


def factors_of(*, user_id: int) -> Factors:
    """One person's second factors. One query."""
    rows = list(seen(Authenticator).filter(user=user_id).order_by("pk"))
    found = [
        Factor(row.pk, row.type, str(row.data.get("name", "")), row.created_at, row.last_used_at)
        for row in rows
        if row.type in (APP, PASSKEY)
    ]
    codes = next((row for row in rows if row.type not in (APP, PASSKEY)), None)
    return Factors(
        app=next((one for one in found if one.kind == APP), None),
        passkeys=tuple(one for one in found if one.kind == PASSKEY),
        codes_left=10 - int(codes.data.get("used_mask", 0)).bit_count() if codes else 0,
    )
