"""`drydock-fleet list_join_tokens`: list the join tokens, each with the machines that enrolled with it."""

from fleet.management.helpers import OperationCommand
from fleet.projections import machines


class Command(OperationCommand):
    help = "List join tokens, newest first: prefix, state, uses, expiry, set, comment, and machines enrolled with them."

    def run(self) -> None:
        for row in machines.page_of_join_tokens(now=self.now, size=500).results:
            uses = f"{row.uses} of {row.max_uses}" if row.max_uses else str(row.uses)
            self.stdout.write(
                f"{row.prefix}  {'valid' if row.valid else 'expired'}  {uses} uses"
                f"  until {row.expires_at:%Y-%m-%d %H:%M} UTC"
                f"  {row.set_name or 'any set'}{'' if row.confines or not row.set_name else ' if they name none'}"
                f"  {row.comment}  {', '.join(row.enrolled)}"
            )
