"""Taking what machines say of their hooks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from drydock_agent import wire

from fleet.domain.entries import EntryKind
from fleet.domain.preparing import BAD_OUTCOMES
from fleet.models import Entry, Machine, Preparation, ScheduledEvent
from fleet.operations.entries import entry

MAX_OUTPUT = 4000
WORDS = {"succeeded": "succeeded", "timed-out": "ran out of time", "failed": "failed"}


@dataclass(frozen=True, slots=True)
class HookWord:
    """One report of one machine (row id) about its hooks, with its place in the machine's own sequence."""

    machine_id: int
    position: tuple[int, int]
    at: datetime
    data: wire.HookData

    @property
    def event_id(self) -> str:
        return self.data.event_id.strip().upper()


def events_of(hook_words: Iterable[HookWord]) -> set[int]:
    """The row ids of the events that these words are about, as far as they are known."""
    ids = {word.event_id for word in hook_words}
    return set(ScheduledEvent.objects.filter(event_id__in=ids).values_list("pk", flat=True)) if ids else set()


def take(hook_words: Sequence[HookWord]) -> list[Entry]:
    """Merge the words, oldest first for each machine; the entries to write. A word behind a newer one is history."""
    events = {
        event.event_id: event
        for event in ScheduledEvent.objects.filter(event_id__in={word.event_id for word in hook_words})
    }
    names = dict(
        Machine.objects.filter(pk__in={word.machine_id for word in hook_words}).values_list("pk", "resource_name")
    )
    known = {
        (row.event_id, row.machine_id): row
        for row in Preparation.objects.filter(event__in=events.values(), machine_id__in=names)
    }
    written: list[Entry] = []
    for word in sorted(hook_words, key=lambda word: (word.machine_id, word.position)):
        event = events.get(word.event_id)
        if event is not None:
            row = known.setdefault(
                (event.pk, word.machine_id),
                Preparation(event_id=event.pk, machine_id=word.machine_id, epoch=0, seq=0),
            )
            if word.position > (row.epoch, row.seq):
                _merge(row, word)
        line = _entry(word, names[word.machine_id], event)
        if line is not None:
            written.append(line)
    for row in known.values():
        row.save()
    return written


def _merge(row: Preparation, word: HookWord) -> None:
    row.epoch, row.seq = word.position
    data, phase = word.data, word.data.phase
    if phase not in ("prepare", "recover"):
        return
    if data.step == "begin":
        setattr(row, f"{phase}_outcome", "running")
        setattr(row, f"{phase}_began_at", word.at)
        setattr(row, f"{phase}_ended_at", None)
        setattr(row, f"{phase}_failed_hook", "")
        row.late = row.late or data.late
    elif data.step == "hook" and data.outcome in BAD_OUTCOMES and not getattr(row, f"{phase}_failed_hook"):
        setattr(row, f"{phase}_failed_hook", data.hook[:200])
    elif data.step == "end":
        setattr(row, f"{phase}_outcome", data.outcome[:50])
        setattr(row, f"{phase}_ended_at", word.at)


def _entry(word: HookWord, name: str, event: ScheduledEvent | None) -> Entry | None:
    data = word.data
    # That a folder holds nothing is shown on the page and is no news.
    if data.outcome == "nothing":
        return None
    if data.step == "begin" and data.late:
        kind, text = EntryKind.HOOK_LATE, f"{name} begins to {data.phase} late: the event had started already."
    elif data.step == "begin":
        kind, text = EntryKind.HOOKS_BEGAN, f"{name} begins to {data.phase}."
    elif data.step == "end":
        kind, text = EntryKind.HOOKS_ENDED, f"{name}: {data.phase} {WORDS.get(data.outcome, data.outcome)}."
        if data.outcome in BAD_OUTCOMES and data.output.strip():
            text += f" {data.output.strip()[:300]}"
    else:
        good = data.outcome == "succeeded"
        kind = EntryKind.HOOK_SUCCEEDED if good else EntryKind.HOOK_FAILED
        took = f" after {data.seconds:.1f} s" if data.seconds is not None else ""
        status = f" with status {data.exit_status}" if not good and data.exit_status is not None else ""
        text = f"{name}: {data.phase} hook {data.hook} {WORDS.get(data.outcome, data.outcome)}{status}{took}."
    return entry(
        kind,
        text.replace("\x00", ""),
        at=word.at,
        event_id=event.pk if event else None,
        set_id=event.availability_set_id if event else None,
        machine_id=word.machine_id,
        actor=name,
        via="agent",
        hook=data.hook.replace("\x00", "")[:200],
        phase=data.phase[:20],
        outcome=data.outcome[:50],
        exit_status=data.exit_status,
        seconds=data.seconds,
        output=data.output.replace("\x00", "\N{REPLACEMENT CHARACTER}")[-MAX_OUTPUT:],
    )
