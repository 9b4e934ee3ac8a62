"""Registers the functions of the audit that the core calls. Imported when the app is loaded."""

from fleet.accounts import privacy
from fleet.audit import archived_entries, models, partition_drop, queries, retention, seals, text
from fleet.audit.archive_format import ArchiveKind
from fleet.operations import blind_spots, reconcile
from fleet.projections import visibility
from fleet.projections.archived import ARCHIVE
from fleet.projections.desk import gauges, readiness
from fleet.projections.visibility import everything
from fleet.wording import say

say.register(text)
# Entries of the archive are filtered by the visibility of their subjects.
visibility.register({models.ArchiveFile: everything, models.ArchiveState: everything})
ARCHIVE.entries_of = archived_entries.entries_of
ARCHIVE.archived_at = archived_entries.archived_at
ARCHIVE.archived_until = archived_entries.archived_until
ARCHIVE.documents_of = archived_entries.documents_of
reconcile.IF_QUIET[partition_drop.RUN] = partition_drop.make_ahead
reconcile.SLOW_IF_QUIET[seals.SEAL_RUN] = seals.seal
gauges.MEASURES.append(queries.measure)
readiness.NOTICES["archive"] = queries.archive_fault
# Archived entries cannot be changed; those from before 0.2.0 contain names of users.
privacy.UNCHANGEABLE.append(models.ArchiveFile.objects.filter(kind=ArchiveKind.ENTRIES.value).exists)
blind_spots.LOOKS += [seals.troubles, retention.troubles]
