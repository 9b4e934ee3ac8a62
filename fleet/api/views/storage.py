"""What the database holds, how it grows, and how the archive is."""

from rest_framework import serializers

from fleet.api.calls import Call
from fleet.api.describe import describe
from fleet.api.shapes.derive import shape
from fleet.domain.archive import ArchiveKind
from fleet.projections.timeline.storage import ArchiveRow, LeavingRow, StorageKind, storage
from fleet.projections.timeline.storage import Storage as Stored

KINDS = [kind.value for kind in ArchiveKind]
StorageKindShape = shape(
    StorageKind,
    {
        "rows": "Postgres' estimate.",
        "size": "Bytes, with indexes.",
        "parts": "Parts of the table; each leaves as a whole.",
        "daily_rows": "Rows a day, as its newest came; null where that cannot be said yet.",
        "daily_bytes": "Bytes a day, as its newest rows came.",
        "days": "How many days rows stay; null for ever.",
        "held": "Why rows that are old enough have not left; else empty.",
    },
    kind=serializers.ChoiceField(KINDS, help_text="What it is."),
)
LeavingShape = shape(LeavingRow, {"at": "From then on."}, kind=serializers.ChoiceField(KINDS, help_text="What it is."))
ArchiveShape = shape(
    ArchiveRow,
    {
        "where": "Its address without its key; empty where there is no archive.",
        "last_at": "When its last file was written.",
        "worked_at": "When all was well for the last time.",
        "fault": "What is wrong with it; else empty.",
    },
)
StorageShape = shape(
    Stored,
    {
        "size": "Bytes of the whole database.",
        "most": "Bytes that it has room for, or, where nobody said, the next round size.",
        "most_is_stated": "Whether `DATABASE_GIGABYTES` says it.",
        "daily_bytes": "Bytes a day, as the newest rows came.",
        "full_at": "When it comes to `most`; null for not within ten years, or where that cannot be said.",
        "documents": "Bytes of the bodies of documents.",
        "rest": "Bytes of everything else.",
        "leaving": "What leaves next.",
    },
)


class Storage(Call):
    @describe(
        "get_storage",
        "What the database holds, how it grows, and how the archive is",
        "Sizes are bytes. What leaves goes into the archive first; what is wrong with that stands in `archive.fault`.",
        needs="admin",
        answer=StorageShape,
    )
    def get(self) -> Stored:
        return storage(now=self.now)
