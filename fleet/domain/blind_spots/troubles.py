"""What of all that hides news is told by itself: when it begins, and when it is over. Pure.

Told is what may begin while nobody does anything. What comes with a change that somebody made (zones, versions, sizes,
an inventory) stands on the page of blind spots alone.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from fleet.domain.timeline import EntryKind

# What is there at one look only is not told: machines restart, networks hiccup.
SETTLES = timedelta(seconds=30)
# More that begin or end together are told as one.
MOST_ALONE = 5
# So many names are kept of what is told.
MOST_NAMES = 20

# The entry of each, by its code.
OPENING: Mapping[str, EntryKind] = {
    "set-unwatched": EntryKind.SET_UNWATCHED,
    "agent-silent": EntryKind.SOURCE_QUIET,
    "cache-unheard": EntryKind.SOURCE_QUIET,
    "near-switch-off": EntryKind.COVERAGE_OPENED,
    "document-lacking": EntryKind.COVERAGE_OPENED,
    "reports-quarantined": EntryKind.COVERAGE_OPENED,
    "wrong-clock": EntryKind.COVERAGE_OPENED,
    "waits-for-admission": EntryKind.COVERAGE_OPENED,
    "set-aside": EntryKind.COVERAGE_OPENED,
    "era-not-begun": EntryKind.COVERAGE_OPENED,
    "clocks-wrong": EntryKind.COVERAGE_OPENED,
    "audit-failed": EntryKind.AUDIT_FAILED,
    "not-sealed": EntryKind.STORAGE_TROUBLE,
    "database-large": EntryKind.STORAGE_TROUBLE,
    "partition-late": EntryKind.STORAGE_TROUBLE,
    "transactions-run-out": EntryKind.STORAGE_TROUBLE,
    "archive-fails": EntryKind.STORAGE_TROUBLE,
}
# These are so at one look, or not at all.
AT_ONCE = frozenset(
    {
        "audit-failed",
        "clocks-wrong",
        "reports-quarantined",
        "not-sealed",
        "database-large",
        "partition-late",
        "transactions-run-out",
        "archive-fails",
    }
)


@dataclass(frozen=True, slots=True)
class Trouble:
    """`set_id` or `cache_id` (row ids) where it is about one, called `of`; `names` are the machines concerned, the
    first of `count`; `values` what else its sentence names.
    """

    code: str
    set_id: int | None = None
    cache_id: int | None = None
    of: str = ""
    names: tuple[str, ...] = ()
    count: int = 0
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def key(self) -> str:
        """What tells it from all others that there are at one time."""
        where = f"set:{self.set_id}" if self.set_id is not None else f"cache:{self.cache_id}"
        return f"{self.code}:{where if self.set_id or self.cache_id else ''}"


def together(troubles: Iterable[Trouble]) -> list[Trouble]:
    """The same as they are told: those of one code, where there are many, as one that names the first of them."""
    by_code: dict[str, list[Trouble]] = {}
    for one in troubles:
        by_code.setdefault(one.code, []).append(one)
    told = []
    for code, several in by_code.items():
        if len(several) <= MOST_ALONE:
            told += several
        else:
            names = tuple(sorted(one.of for one in several)[:MOST_NAMES])
            told.append(Trouble(code, names=names, count=len(several), values={"places": len(several)}))
    return told


def without_lesser(troubles: Collection[Trouble]) -> list[Trouble]:
    """Without what goes without saying: where nobody watches a set, its machines are silent."""
    dark = {one.set_id for one in troubles if one.code == "set-unwatched"}
    return [one for one in troubles if one.code != "agent-silent" or one.set_id not in dark]
