"""Words of the desk: why an empty queue says little."""

from fleet.domain.timeline import EntryKind
from fleet.wording.sentences import EntryText, Sentence, counted
from fleet.wording.times import at

SENTENCES: dict[str, Sentence] = {
    "no-agents": "No agent has enrolled, so nothing that Azure announces is seen.",
    "no-live-agents": lambda values, reader: (
        f"None of {counted(values['count'], 'agent')} is live, so nothing that Azure announces is seen."
    ),
    "agents-missing": lambda values, reader: (
        f"{counted(values['count'], 'agent is', 'agents are')} not live: what only they would see is missed."
    ),
    "machines-without-agents": lambda values, reader: (
        f"{counted(values['count'], 'machine of the inventory has', 'machines of the inventory have')} no agent."
    ),
    "nobody-reconciles": lambda values, reader: (
        f"Nobody has looked for what is due since {at(values['at'], reader)}."
        if values["at"]
        else "Nobody has looked for what is due yet."
    ),
    "celery-is-away": "Celery is away: the web processes look for what is due themselves, a few seconds later.",
}
ENTRIES: dict[EntryKind, EntryText] = {}
