"""Current blind spots, and stored counts of the sets."""

from collections.abc import Mapping
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Index, UniqueConstraint

from fleet.domain.reasons import as_json
from fleet.models.caches import Cache
from fleet.models.machines import AvailabilitySet
from fleet.models.rows import Row


class OpenTrouble(Row):
    """A current blind spot about which a notification is sent (`fleet.domain.blind_spots`).

    The row is deleted when the blind spot ends. `recorded_at`: when the timeline entry was written; NULL while the
    blind spot is too recent for an entry. The other columns are values of the sentence.
    """

    key = models.TextField(primary_key=True)
    code = models.TextField()
    availability_set = models.ForeignKey(
        AvailabilitySet, null=True, blank=True, on_delete=models.CASCADE, related_name="+", db_index=False
    )
    cache = models.ForeignKey(Cache, null=True, blank=True, on_delete=models.CASCADE, related_name="+", db_index=False)
    of = models.TextField(blank=True, default="")
    names = models.JSONField(default=list)
    count = models.IntegerField(default=0)
    values = models.JSONField(default=dict)
    since = models.DateTimeField()
    recorded_at = models.DateTimeField(null=True, blank=True)


def trouble(code: str, values: Mapping[str, Any] | None = None, **columns: Any) -> OpenTrouble:
    """Return a current blind spot about which a notification is sent, not stored yet.

    `of`: the name of the set or cache. `names`: affected machines; they may be fewer than `count`. `values`: further
    values of the sentence.
    """
    set_id, cache_id = columns.get("availability_set_id"), columns.get("cache_id")
    where = f"set:{set_id}" if set_id is not None else f"cache:{cache_id}" if cache_id is not None else ""
    return OpenTrouble(key=f"{code}:{where}", code=code, values=as_json(values or {}), **columns)


class StaleSet(Row):
    """Marks a set whose stored counts may be outdated. Database triggers insert one row for each change.

    Rows are only inserted and deleted. So changes do not wait for each other, and a change that is committed during a
    check is not lost. There is no foreign key constraint, because it would lock the set's row.
    """

    availability_set = models.ForeignKey(
        AvailabilitySet, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+"
    )


class SetCount(Row):
    """Stored counts of a set: machines by presence, and machines of the inventory without an agent.

    `judged_at`: when the set's blind spots were last computed; `judged_by`: version, protocol and clock tolerance of
    the backend that did it. `due_at`: when they may change although no machine reports a change.
    """

    # No constraint here either, nor below: a write must not wait for a lock on the set.
    availability_set = models.OneToOneField(
        AvailabilitySet, primary_key=True, on_delete=models.CASCADE, db_constraint=False, related_name="count"
    )
    live = models.IntegerField(default=0)
    late = models.IntegerField(default=0)
    silent = models.IntegerField(default=0)
    gone = models.IntegerField(default=0)
    expected = models.IntegerField(default=0)
    # Those that are not revoked, however present.
    agents = models.IntegerField(default=0)
    without_agent = models.IntegerField(default=0)
    regions = ArrayField(models.TextField(), default=list)
    judged_at = models.DateTimeField()
    judged_by = models.TextField()
    due_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            Index(fields=["judged_at"], name="set_judged_longest_ago"),
            # A query for outdated rows reads only those.
            Index(fields=["due_at"], name="set_judged_again"),
            Index(fields=["judged_by"], name="set_judged_by"),
        ]


class SetBlindSpot(Row):
    """One blind spot of a set (`fleet.domain.blind_spots`), as the last check found it.

    Lists are sorted by (`rank`, `set_name`, set, `part`), with texts in code point order.
    """

    availability_set = models.ForeignKey(
        AvailabilitySet, on_delete=models.CASCADE, db_constraint=False, related_name="+"
    )
    rank = models.SmallIntegerField()
    code = models.TextField()
    set_name = models.TextField(db_collation="C")
    part = models.TextField(blank=True, default="", db_collation="C")
    certainty = models.TextField()
    machine_ids = ArrayField(models.BigIntegerField(), default=list)
    names = ArrayField(models.TextField(), default=list)
    count = models.IntegerField(default=0)
    values = models.JSONField(default=dict)
    # Another set that it names: a user who cannot see that set does not see this blind spot.
    other_set = models.ForeignKey(
        AvailabilitySet,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        db_constraint=False,
        db_index=False,
        related_name="+",
    )

    class Meta:
        constraints = [UniqueConstraint(fields=["availability_set", "code", "part"], name="set_blind_spot_once")]
        indexes = [Index(fields=["rank", "set_name", "availability_set", "part"], name="set_blind_spot_listed")]
