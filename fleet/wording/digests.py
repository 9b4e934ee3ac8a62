"""Words of a digest: how a storm of events stands as a whole."""

from collections.abc import Iterator

from fleet.domain.messages.digests import Digest
from fleet.wording.messages import MessageWords
from fleet.wording.reader import Reader
from fleet.wording.times import at

# Buttons of a message.
OPEN, CLAIM = "Open in Drydock", "Claim"
# Of types, so many are named.
MOST_TYPES = 8


def digest_words(digest: Digest, reader: Reader) -> MessageWords:
    """How it stands now."""
    where = f" of {digest.of}" if digest.of else ""
    drill = "DRILL: " if digest.drill else ""
    events = "1 event" if digest.total == 1 else f"{digest.total:,} events"
    if not digest.events:
        title = f"{drill}{events}{where}: all over"
        return MessageWords(title, title, (title,), title[:160], "/")
    title = f"{drill}{events}{where}: {_stand(digest)}"
    lines = (title, *_lines(digest, reader))
    return MessageWords(title, title, lines, title[:160], "/")


def _stand(digest: Digest) -> str:
    counts = (
        (digest.count("waits"), "to decide"),
        (digest.count("started"), "under way"),
        (digest.over, "over"),
    )
    return ", ".join(f"{count:,} {what}" for count, what in counts if count) or "nothing to decide"


def _lines(digest: Digest, reader: Reader) -> Iterator[str]:
    types = digest.types
    named = ", ".join(f"{count:,} {name or 'of no type'}" for name, count in types[:MOST_TYPES])
    rest = sum(count for _, count in types[MOST_TYPES:])
    yield f"Open: {named}{f', {rest:,} others' if rest else ''}."
    nobody = sum(event.waits and not event.on_it for event in digest.events.values())
    if nobody:
        yield f"Nobody is on {nobody:,} of them."
    if digest.nearest:
        yield "Next deadlines:"
        for deadline, event in digest.nearest:
            yield f"{event.what}: decide by {at(deadline, reader)}" + (", taken." if event.on_it else ".")


def more_events(count: int, title: str) -> str:
    """What a thread says when so many have come in addition."""
    return f"{count:,} more. {title}"
