"""Texts of the queue and the map: reasons to doubt an empty queue, titles of map cells, and names of lists with saved
views.
"""

from collections.abc import Mapping
from typing import Any

from fleet.domain.desk import CacheState, RelayHealth, WorstState
from fleet.domain.timeline import EntryKind
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording.badges import badge_of
from fleet.wording.events import named
from fleet.wording.sentences import EntryText, Sentence, counted
from fleet.wording.times import Reader, at


def _set_on_map(values: Mapping[str, Any], reader: Reader) -> str:
    """Return a title such as `web: decision needed; 5 of 6 agents live`. For a live set it is short, because a page has
    thousands of cells.
    """
    name, live, total, missing = values["name"], values["live"], values["total"], values["without_agent"]
    if values["worst"] == WorstState.LIVE:
        return f"{name}: {live} live"
    said = f"{name}: {badge_of(WorstState(values['worst'])).label}"
    if total:
        said += f"; {live} of {total} agents live"
    return f"{said}; {counted(missing, 'machine')} without an agent" if missing else said


def _cache_on_map(values: Mapping[str, Any], reader: Reader) -> str:
    state = CacheState(values["worst"])
    live = state is CacheState.LIVE
    said = counted(values["listening"], "machine listens", "listen") if live else badge_of(state).label
    return f"cache {values['name']}: {said}"


def _group_on_map(values: Mapping[str, Any], reader: Reader) -> str:
    """Return a title such as `shop-001: 20 sets (decision needed: 2, all agents live: 18)`."""
    said = [
        f"{counted(sum(count for _, count in counts), noun)} "
        f"({', '.join(f'{badge_of(kind(state)).label}: {count}' for state, count in counts)})"
        for noun, kind, counts in (("set", WorstState, values["of_sets"]), ("cache", CacheState, values["of_caches"]))
        if counts
    ]
    return f"{values['name'] or 'not stated'}: {', '.join(said)}"


def _meeting(values: Mapping[str, Any], reader: Reader) -> str:
    """Return the sentence about an event of machines that overlaps with a maintenance of a cache."""
    event = f"{named(values['event_type'], values['resources'])} ({values['set']})"
    begin, end = at(values["begin"], reader), at(values["end"], reader)
    cache = f"the maintenance of {values['cache']}"
    if values["tense"] == "past":
        return f"{event} and {cache} overlapped from {begin} to {end}."
    if values["tense"] == "now":
        return f"{event} and {cache} have overlapped since {begin}."
    return f"{event} and {cache} may overlap from {begin} on."


SENTENCES: dict[str, Sentence] = {
    "service-meeting": _meeting,
    "set-on-map": _set_on_map,
    "group-on-map": _group_on_map,
    "cache-on-map": _cache_on_map,
    "no-agents": "No agent has enrolled, so Drydock sees no event.",
    "no-live-agents": "None of {count:agent|agents} is live, so Drydock sees no event.",
    "agents-missing": "{count:agent is|agents are} not live: Drydock misses events that only these agents see.",
    "machines-without-agents": "{count:machine of the inventory has|machines of the inventory have} no agent.",
    "nobody-reconciles": "No process has reconciled {at:?since {at:time}|yet}.",
    "clock-wrong": "The clock of this process differs from the database's by {seconds} seconds.",
    "clocks-wrong": "The clock of {count:process is|processes are} wrong, by up to {seconds} seconds: {names:list}."
    " They neither decide nor send.",
    "view-of-no-list": "This page has no filters to save.",
    "too-many-views": "You have {most} saved views, the maximum: delete one first.",
    "no-such-view": "You have no view with this number.",
    "celery-is-away": "Celery is not running: the web processes do its work, a few seconds later.",
}
# Tooltips of the relay in the status bar.
RELAY_TITLES = {
    RelayHealth.WORKS: "Celery sends approvals to the agents.",
    RelayHealth.WITHOUT_CELERY: "The web processes do the work of Celery: approvals are sent a few seconds later.",
    RelayHealth.STANDS_STILL: "No process sends approvals to the agents.",
}
# Names of the lists with saved views, if they differ from the code.
LISTS = {"fleet": "the fleet", "timeline": "the timeline", "audit": "the audit"}


def _view(row: TimelineRow, reader: Reader) -> str:
    verb = "saved" if row.kind is EntryKind.VIEW_SAVED else "deleted"
    shared = ", shared with all users" if row.data["shared"] else ""
    page = LISTS.get(row.data["page"], row.data["page"])
    return f"{row.actor} {verb} the view “{row.data['name']}” of {page}{shared}."


ENTRIES: dict[EntryKind, EntryText] = {
    EntryKind.VIEW_SAVED: _view,
    EntryKind.VIEW_DELETED: _view,
}
