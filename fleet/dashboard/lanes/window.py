"""From when to when a picture shows, and the links that lead earlier, later, closer and farther. `?from=&to=`."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from fleet.domain.times import clamped
from fleet.projections.spans import TimeWindow
from fleet.wording.times import duration, iso, local

SHORTEST = timedelta(minutes=1)
LONGEST = timedelta(days=400)
DAY = timedelta(days=1)
# What can be chosen, up to now; the first is shown when nothing is asked for.
LENGTHS = (DAY, timedelta(hours=1), timedelta(hours=6), timedelta(days=7), timedelta(days=30))
# Of what lies ahead as much is shown: most is announced a quarter of an hour ahead, and takes another at most.
AHEAD = 1 / 16
LEAST_AHEAD = timedelta(minutes=35)


@dataclass(frozen=True, slots=True)
class Way:
    """A link to another time. `chosen`: it is the one that is shown."""

    label: str
    href: str
    title: str = ""
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """The time that is shown, and the ways to others. `query` is what asks for it, `live` that it moves on with now."""

    window: TimeWindow
    lengths: tuple[Way, ...]
    ways: tuple[Way, ...]
    live: bool
    now: datetime

    @property
    def said(self) -> str:
        """`22 Nov 14:00 to 15:00`."""
        begin, end = local(self.window.begin), local(self.window.end)
        until = f"{end:%H:%M}" if begin.date() == end.date() else f"{end.day} {end:%b} {end:%H:%M}"
        return f"{begin.day} {begin:%b} {begin:%H:%M} to {until}"


def chosen_window(asked: Mapping[str, str], *, now: datetime, since: datetime | None = None) -> Choice:
    """What the address asks for: `from` and `to`, or `hours` up to now. Nothing before `since`, when somebody could
    first have listened.
    """
    begin, end = _time(asked.get("from", "")), _time(asked.get("to", ""))
    live = begin is None and end is None
    length = next((one for one in LENGTHS if _hours(one) == asked.get("hours", "")), LENGTHS[0])
    if live:
        begin, end = now - length, now
    end = end or max(now, (begin or now) + SHORTEST)
    begin = begin or end - DAY
    if since is not None:
        begin = max(begin, min(since, now) - SHORTEST)
    begin = max(begin, end - LONGEST)
    if live:
        end = now + max((now - begin) * AHEAD, LEAST_AHEAD)
    window = TimeWindow(begin, max(end, begin + SHORTEST))
    rest = [(name, value) for name, value in asked.items() if name not in ("from", "to", "hours", "part", "cursor")]
    lengths = tuple(
        Way(duration(one.total_seconds()), _to(rest, hours=_hours(one)), "", live and one == length)
        for one in sorted(LENGTHS)
    )
    return Choice(window, lengths, _ways(window, rest, live=live), live, now)


def within(asked: Mapping[str, str], begin: datetime, end: datetime) -> str:
    """The same picture of this time, with a little air."""
    air = max((end - begin) * 0.1, timedelta(seconds=30))
    rest = [(name, value) for name, value in asked.items() if name not in ("from", "to", "hours", "part", "cursor")]
    return _to(rest, **_times(begin - air, end + air))


def _ways(window: TimeWindow, rest: list[tuple[str, str]], *, live: bool) -> tuple[Way, ...]:
    begin, end, length = window.begin, window.end, window.length
    quarter = length / 4
    found = [
        Way("Earlier", _to(rest, **_times(begin - length / 2, end - length / 2)), "Half of it earlier"),
        Way("Later", _to(rest, **_times(begin + length / 2, end + length / 2)), "Half of it later"),
        Way("Closer", _to(rest, **_times(begin + quarter, end - quarter)), "The middle half"),
        Way("Farther", _to(rest, **_times(begin - length / 2, end + length / 2)), "Twice as much"),
    ]
    return (*found, *([] if live else [Way("Now", _to(rest), "Up to now, and moving on with it")]))


def _times(begin: datetime, end: datetime) -> dict[str, str]:
    return {"from": iso(clamped(begin)), "to": iso(clamped(end))}


def _to(rest: list[tuple[str, str]], **times: str) -> str:
    return f"?{urlencode([*rest, *times.items()])}"


def _hours(length: timedelta) -> str:
    return f"{length / timedelta(hours=1):g}"


def _time(text: str) -> datetime | None:
    # A plus in an address is a blank.
    try:
        at = datetime.fromisoformat(text.strip().replace(" ", "+", 1) if text.count(":") > 2 else text.strip())
        return clamped(at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
