"""Coverage: who listened to which cache, when. A timeline without news means something only where somebody listened."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from drydock_agent import wire

from fleet.domain.entries import EntryKind
from fleet.domain.maintenance import EARLY, END_NOT_SEEN_AFTER, SLACK
from fleet.models import Cache, Coverage, Entry, Maintenance, Observation
from fleet.operations.entries import entry

SUBSCRIBED = "subscribed"
# A machine that reported nothing for this long before a change was not there; it says something every 300 s.
SILENT_AFTER = timedelta(seconds=400)


@dataclass(frozen=True, slots=True)
class Word:
    """One change of coverage as one machine (row id) reports it, with its place in the machine's own sequence."""

    machine_id: int
    position: tuple[int, int]
    at: datetime
    data: wire.CoverageData


def take_settings(words: Sequence[Word], caches: Mapping[str, Cache]) -> None:
    """What the agents' configuration says of the caches: tier, and how many ports make a shard."""
    for word in sorted(words, key=lambda word: word.at):
        cache = caches[word.data.cache]
        tier = word.data.tier or cache.tier
        if (cache.tier, cache.divisor) != (tier, word.data.divisor):
            cache.tier, cache.divisor = tier, word.data.divisor
            cache.save(update_fields=["tier", "divisor"])


def take(words: Sequence[Word], caches: Mapping[str, Cache], names: Mapping[int, str]) -> list[Entry]:
    """Merge the words, oldest first for each machine; the entries to write. A word behind a newer one is history."""
    if not words:
        return []
    newest: dict[tuple[int, int], Coverage] = {}
    for row in Coverage.objects.filter(
        cache__any={caches[word.data.cache].pk for word in words},
        machine__any={word.machine_id for word in words},
        until=None,
    ):
        newest[row.cache_id, row.machine_id] = row
    written = []
    for word in sorted(words, key=lambda word: (word.machine_id, word.position)):
        cache = caches[word.data.cache]
        before = newest.get((cache.pk, word.machine_id))
        if before is not None and word.position <= (before.epoch, before.seq):
            continue
        again = before is not None and before.state == word.data.state
        if before is not None and again and word.data.state != SUBSCRIBED:
            before.reason, before.vouched_at = word.data.reason, max(before.vouched_at, word.at)
            before.epoch, before.seq = word.position
            before.save()
            continue
        if before is not None:
            _close(before, word, again=again)
        newest[cache.pk, word.machine_id] = Coverage.objects.create(
            cache=cache,
            machine_id=word.machine_id,
            state=word.data.state,
            reason=word.data.reason,
            since=word.at,
            vouched_at=word.at,
            epoch=word.position[0],
            seq=word.position[1],
        )
        line = _entry(word, cache, before, names[word.machine_id], again=again)
        written += [line] if line else []
    return written


def _close(before: Coverage, word: Word, *, again: bool) -> None:
    """End a stretch. An agent that says the same again was restarted; until its last sign of life it was there."""
    last = before.vouched_at
    previous = Observation.objects.filter(
        machine=word.machine_id, epoch=word.position[0], seq=word.position[1] - 1
    ).values_list("at", flat=True)
    last = min(max([last, *previous]), word.at)
    # Who did not listen before did not listen in the silence either.
    silent = before.state == SUBSCRIBED and (again or word.at - last > SILENT_AFTER)
    before.until = max(before.since, last if silent else word.at)
    before.save(update_fields=["until"])


def _entry(word: Word, cache: Cache, before: Coverage | None, name: str, *, again: bool) -> Entry | None:
    state = word.data.state
    listened = before is not None and before.state == SUBSCRIBED
    reason = f" ({word.data.reason})" if word.data.reason else ""
    if state == SUBSCRIBED:
        if again:
            return None
        kind, text = EntryKind.CACHE_LISTENED, f"{name} listens to {cache.host}."
        if before is not None:
            text = f"{name} listens to {cache.host} again after {_span(word.at - before.since)}."
    elif state == "refused":
        kind, text = EntryKind.CACHE_REFUSED, f"{cache.host} refuses {name}{reason}."
    elif state == "unsupported":
        kind, text = EntryKind.CACHE_UNSUPPORTED, f"{cache.host} publishes no maintenance notifications{reason}."
    elif not listened:
        # Lost already: why it cannot come back stands on the page.
        if before is not None:
            return None
        kind, text = EntryKind.CACHE_LOST, f"{name} cannot listen to {cache.host}{reason}."
    elif _announced(cache, word.at):
        kind, text = EntryKind.CACHE_LOST, f"{name} lost {cache.host} during its maintenance{reason}: that is expected."
    else:
        kind = EntryKind.CACHE_LOST_UNANNOUNCED
        text = f"{name} lost {cache.host} without any notice{reason}; reboots by users and monthly patching send none."
    return entry(
        kind,
        text.replace("\x00", "\N{REPLACEMENT CHARACTER}"),
        at=word.at,
        machine_id=word.machine_id,
        cache_id=cache.pk,
        actor=name,
        via="agent",
        state=state,
        reason=word.data.reason,
    )


def _span(length: timedelta) -> str:
    seconds = max(0, int(length.total_seconds()))
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min {seconds % 60} s"


def _announced(cache: Cache, at: datetime) -> bool:
    """Whether a maintenance of the cache explains that a connection is lost at this time."""
    for row in Maintenance.objects.filter(cache=cache, last_at__gte=at - timedelta(hours=3), first_at__lte=at + SLACK):
        begins = row.began_at or (row.expected_at - EARLY if row.expected_at else row.first_at)
        ends = row.ended_at or max(row.last_at, begins) + END_NOT_SEEN_AFTER
        if begins - SLACK <= at <= ends + SLACK:
            return True
    return False
