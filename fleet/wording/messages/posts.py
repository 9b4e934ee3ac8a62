"""Words of what was sent and what was not: why something was dropped, what went wrong, and who was told when."""

from collections.abc import Mapping

from fleet.domain.messages.kinds import KINDS
from fleet.domain.messages.moments import GROUP, TEST
from fleet.projections.messages.posts import ChannelNamed
from fleet.projections.messages.subjects import EventNamed, Subject
from fleet.projections.messages.told import NotTaken, WhoWasTold
from fleet.wording import times
from fleet.wording.channels import error_words, moment_label
from fleet.wording.events import named
from fleet.wording.kinds import KIND_WORDS
from fleet.wording.reader import Reader
from fleet.wording.sentences import counted, listed

# Why nobody needed to be told any more, and why nobody tries any longer.
WHY: Mapping[str, str] = {
    "event-over": "the event was over",
    "event-open-again": "the event was open again",
    "over": "it was over",
    "decided": "it was decided",
    "claimed": "somebody was on it",
    "answered": "Azure had answered",
    "started": "the event had started",
    "superseded": "a newer message says the same and more",
    "claim-ended": "whoever had claimed it gave it back",
    "came-to-nothing": "the decision came to nothing",
    "hold-ended": "it was no longer left to Azure",
    "watched": "the set was watched again",
    "moved": "NotBefore had moved, and the time was reckoned anew",
    "channel-deleted": "the channel was deleted",
}
NOBODY = "Nobody was told"


def why(code: str) -> str:
    """Why a message or a post came to nothing; a code of another release stays one."""
    return WHY.get(code) or error_words(code)


def went_wrong(code: str) -> str:
    """What went wrong with an attempt, as far as we know."""
    return error_words(code)


def post_label(moment: str, count: int) -> str:
    """What a post tells, in a few words."""
    match moment:
        case _ if moment == GROUP:
            return f"{counted(count, 'message')} at once"
        case _ if moment == TEST:
            return "test"
    return moment_label(moment)


def kind_label(kind: str) -> str:
    """What a kind of channel is called."""
    return KIND_WORDS[kind].label if kind in KINDS else kind


def channel_named(channel: ChannelNamed) -> str:
    """A channel in a sentence; what somebody has alone is called by whose it is, and by its name for its owner."""
    if not channel.owner:
        return channel.name
    return f"{channel.owner} ({channel.name})" if channel.name else channel.owner


def event_named(event: EventNamed) -> str:
    """Such as `Reboot of vm1`, or `Drill: Reboot of vm1`."""
    return f"{'Drill: ' if event.drill else ''}{named(event.event_type, event.resources)}"


def subject_named(subject: Subject) -> str:
    """What a message is about."""
    name = subject.name or (f"number {subject.id}" if subject.id is not None else "")
    match subject.kind:
        case "event" if subject.event is not None:
            return event_named(subject.event)
        case "maintenance":
            return f"maintenance of cache {name}"
        case "cache" | "machine" | "set" | "channel" | "event":
            return f"{subject.kind} {name}"
    return "the installation"


def told_sentence(told: WhoWasTold, reader: Reader, *, over: bool) -> str:
    """Who was told of an event when, and through what. `over`: it has ended, so that nobody will be any more.

    Such as `Told 14:02:07 #shop-ops, 14:02:08 pager; 2 waiting; mail failed, next try 14:03.`
    """
    parts = [_reached(told, reader, over=over)]
    if told.waiting and not over:
        parts.append(f"{told.waiting} waiting")
    parts += [_failed(one, reader) for one in told.failing]
    return f"{'; '.join(part for part in parts if part)}."


def _reached(told: WhoWasTold, reader: Reader, *, over: bool) -> str:
    if told.told:
        return f"Told {', '.join(f'{times.at(one.at, reader)} {channel_named(one.channel)}' for one in told.told)}"
    if told.unrouted and not told.waiting:
        return f"{NOBODY}: no route wants it"
    if not told.channels and not told.rows:
        return f"{NOBODY}: no channel is set up"
    if not told.rows:
        return f"{NOBODY}: no route that leads to a channel wants it"
    return NOBODY if over else f"{NOBODY} yet"


def _failed(one: NotTaken, reader: Reader) -> str:
    name = channel_named(one.channel)
    if one.given_up:
        return f"{name} failed and was given up"
    return (
        f"{name} failed, next try {times.at(one.next_at, reader)}" if one.next_at else f"{name} failed, tried again now"
    )


def first_names(subjects: list[str], count: int) -> str:
    """The subjects that are named, and how many more there are."""
    more = count - len(subjects)
    return listed([*subjects, f"{more} more"]) if more > 0 else listed(subjects)
