"""`drydock-fleet list_join_tokens`: join tokens, and who enrolled by them."""

from typing import Any

from django.core.management.base import BaseCommand

from fleet.operations import clock
from fleet.projections import machines


class Command(BaseCommand):
    help = (
        "List join tokens, the newest first: beginning, state, uses, expiry, set, what for, and who enrolled by them."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        for row in machines.join_tokens(now=clock.now()):
            uses = f"{row.uses} of {row.max_uses}" if row.max_uses else str(row.uses)
            self.stdout.write(
                f"{row.prefix}  {'valid' if row.valid else 'over'}  {uses} uses"
                f"  until {row.expires_at:%Y-%m-%d %H:%M} UTC"
                f"  {row.set_name or 'any set'}{'' if row.confines or not row.set_name else ' if they name none'}"
                f"  {row.comment}  {', '.join(row.enrolled)}"
            )
