"""Beginning an era: what is written from now on comes after all that was written before, whatever number its
transaction has. That is due after the database was restored: a dump's rows name transactions of another server.
"""

from dataclasses import dataclass
from datetime import datetime

from django.db import connection, transaction

from fleet.domain.actor import Actor
from fleet.domain.timeline import EntryKind
from fleet.models import Entry
from fleet.models.timeline import numbering
from fleet.operations.locks import take_your_time
from fleet.operations.timeline.entries import tell


@dataclass(frozen=True, slots=True)
class Begun:
    """The newest era, whether it began just now, the newest transaction that rows before it name, the server's next
    one, and whether that one is behind.
    """

    era: int
    now: bool
    newest: int
    next: int
    fallen: bool


@transaction.atomic
def begin(*, actor: Actor, now: datetime) -> Begun:
    """Begin the next era, with its entry; nothing where the newest has no other entry than that, so that it may be done
    twice. Only the owner of the tables may. Waits for whoever is writing the timeline.
    """
    table = Entry._meta.db_table
    take_your_time()
    with connection.cursor() as cursor:
        # Whoever writes a row of the era that ends has committed it by then.
        cursor.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        found = numbering()
        kinds = list(Entry.objects.filter(era=found.era).order_by("xid", "id").values_list("kind", flat=True)[:2])
        begun = Begun(found.era, now=False, newest=found.newest, next=found.next, fallen=found.missing)
        if kinds == [EntryKind.ERA_BEGUN.value] and not found.missing:
            return begun
        era = found.era + 1
        cursor.execute(f"ALTER TABLE {table} ALTER COLUMN era SET DEFAULT {era:d}")
    tell(
        EntryKind.ERA_BEGUN,
        actor,
        at=now,
        before={"era": found.era},
        after={"era": era},
        newest=found.newest,
        next=found.next,
        fallen=found.missing,
    )
    return Begun(era, now=True, newest=found.newest, next=found.next, fallen=found.missing)
