"""Taking how machines' hooks for caches ended. Nothing is computed from it: each report is one entry."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from drydock_agent import wire

from fleet.domain.entries import EntryKind
from fleet.models import Cache, Entry
from fleet.operations.entries import entry
from fleet.operations.preparing import MAX_OUTPUT, WORDS


@dataclass(frozen=True, slots=True)
class HookWord:
    """One report of one machine (row id) about a hook for a cache; `at` is corrected."""

    machine_id: int
    at: datetime
    data: wire.RedisHookData


def take(words: Sequence[HookWord], caches: Mapping[str, Cache], names: Mapping[int, str]) -> list[Entry]:
    """The entries to write, oldest first. `caches` holds the known ones by host, locked; one may be missing."""
    return [
        _entry(word, caches.get(word.data.cache), names[word.machine_id])
        for word in sorted(words, key=lambda word: word.at)
    ]


def _entry(word: HookWord, cache: Cache | None, name: str) -> Entry:
    data = word.data
    good = data.outcome == "succeeded"
    what = f"hook {data.hook}" if data.hook else "hooks"
    occasion = " ".join(data.notification_type.split()) or "a line without a type"
    status = f" with status {data.exit_status}" if not good and data.exit_status is not None else ""
    took = f" after {data.seconds:.1f} s" if data.seconds is not None else ""
    text = f"{name}: redis {what} for {occasion} {WORDS.get(data.outcome, data.outcome)}{status}{took}."
    # Where nothing was run to its end, the agent's own sentence says why.
    if data.outcome == "failed" and data.exit_status is None and data.output.strip():
        text += f" {data.output.strip()[:300]}"
    return entry(
        EntryKind.HOOK_SUCCEEDED if good else EntryKind.HOOK_FAILED,
        text.replace("\x00", "\N{REPLACEMENT CHARACTER}"),
        at=word.at,
        machine_id=word.machine_id,
        cache_id=cache.pk if cache else None,
        actor=name,
        via="agent",
        cache=data.cache,
        hook=data.hook.replace("\x00", "\N{REPLACEMENT CHARACTER}"),
        phase="redis",
        notification_type=data.notification_type.replace("\x00", "\N{REPLACEMENT CHARACTER}"),
        outcome=data.outcome,
        exit_status=data.exit_status,
        seconds=data.seconds,
        output=data.output.replace("\x00", "\N{REPLACEMENT CHARACTER}")[-MAX_OUTPUT:],
    )
