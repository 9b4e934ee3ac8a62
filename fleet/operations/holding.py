"""Writing a hold: of a person, of a rule, or what is left when a person withdraws what a rule decided."""

from datetime import datetime

from django.contrib.auth.models import User

from fleet.domain.entries import EntryKind
from fleet.domain.guards import EventFacts
from fleet.models import Hold, Rule
from fleet.operations.entries import entry, write


def write_hold(
    facts: EventFacts,
    event_pk: int,
    *,
    text: str,
    reason: str,
    via: str,
    now: datetime,
    by: User | None = None,
    rule: Rule | None = None,
    wording: str = "",
    token_name: str = "",
) -> Hold:
    """A hold with its entry, for a locked event (row id) that nobody holds. `text` is the entry's sentence."""
    row = Hold.objects.create(
        event_id=event_pk,
        by=by,
        rule=rule,
        rule_wording=wording,
        via=via,
        token_name=token_name,
        reason=reason,
        at=now,
    )
    name = by.get_username() if by is not None else f"rule: {rule.name}" if rule else "Drydock"
    write(
        [
            entry(
                EntryKind.EVENT_HELD,
                text,
                at=now,
                event_id=event_pk,
                set_id=facts.set_id,
                actor=name,
                via=via,
                token_name=token_name,
                why=reason,
                before={"hold": None},
                after={"hold": name},
                rule=wording,
            )
        ]
    )
    return row
