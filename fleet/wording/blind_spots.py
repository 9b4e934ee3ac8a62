"""Wording of blind spots: title, reason and advice of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleet.domain.scheduling import QuarantineKind
from fleet.domain.timeline import EntryKind
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording import times
from fleet.wording.sentences import EntryText, Sentence, counted, some, spoken
from fleet.wording.timeline import FAULTS
from fleet.wording.times import Reader, one_line


@dataclass(frozen=True, slots=True)
class SpotWords:
    """Texts of a blind spot. `reason` and `advice` may use the machine `names` and the other fields of the
    blind spot.
    """

    title: str
    reason: Sentence
    advice: Sentence


def _too_old(values: Mapping[str, Any], reader: Reader) -> str:
    versions = ", ".join(version or "an unknown version" for version in values["versions"])
    return (
        f"{some(values['names'])} run {versions}, older than Drydock's own {values['own']}."
        " What an older agent does not know, it does not report."
    )


def _wrong_clock(values: Mapping[str, Any], reader: Reader) -> str:
    offset = values["offset"]
    return (
        f"The clock of {some(values['names'])} is wrong by up to {abs(offset):.1f} seconds"
        f" ({'ahead' if offset > 0 else 'behind'}). Reported times are corrected; what the machine does by its own"
        " clock is not."
    )


def _unheard(values: Mapping[str, Any], reader: Reader) -> str:
    host = values["names"][0]
    if not values["supported"]:
        return f"{host} publishes no maintenance notifications: its maintenance cannot be seen."
    why = f" ({some([spoken(said) for said in values['reasons']], 3)})" if values["reasons"] else ""
    return f"No agent listens to {host}{why}. Notifications are not repeated: those sent now are lost."


def _unnamed(values: Mapping[str, Any], reader: Reader) -> str:
    return (
        f"It is not stated which set {some(values['names']) or 'this'} belongs to. Its other machines may be missing"
        " here, and do not count when an event is judged."
    )


def _lists_of(values: Mapping[str, Any], reader: Reader) -> str:
    of = f"“{values['set']}”" if values["set"] else "a set without a name"
    return (
        f"{some(values['names'])} may belong to {of}: an open event of that set is listed there, and only machines of"
        " one set see the same events. But an EventId is no secret, so a person decides."
    )


CHECK = "Run “drydock-agent check” on the machine"
REFUSES = "The metadata service refuses the agent with status {}."
ALLOW = (
    "Azure's Metadata Security Protocol or a firewall on the machine may refuse the agent's process: allow it in the"
    " access control profile of the VM, or remove the rule."
)
# Problem of the metadata service -> what happened, and what to do.
PROBLEMS: dict[str, tuple[str, str]] = {
    "no-answer": (
        "The agents can reach Drydock, but the metadata service does not answer them.",
        f"{CHECK}. Check the route and the firewall to 169.254.169.254.",
    ),
    "empty": (
        "The metadata service answers with status 200 and an empty body.",
        "Wait some minutes: Azure does so after changes. If it lasts, restart the machine and ask Azure's support.",
    ),
    "unreadable": (
        "The metadata service answers with something that is no document, for example an HTML page.",
        f"{CHECK}. Make sure that no proxy and no other program answers at 169.254.169.254.",
    ),
    "status-401": (REFUSES.format(401), ALLOW),
    "status-403": (REFUSES.format(403), ALLOW),
    "status-429": (
        "The metadata service answers with status 429, too many requests.",
        "Find the other program on the machine that requests more than five times a second from 169.254.169.254.",
    ),
}


def _problem(code: str) -> tuple[str, str]:
    """What happened, and what to do."""
    status = code.removeprefix("status-")
    other = f"The metadata service answers with status {status}."
    return PROBLEMS.get(code) or (other, f"{CHECK}. If it lasts, ask Azure's support.")


BRING_BACK = "Bring one of its agents back: its first request switches the service on, and may take two minutes."
ENABLE = "Enable OSImageNotificationProfile of the scale set if upgrades of its operating system should be announced."

# Quarantined kinds, at the beginning of a sentence.
ASIDE: dict[str, str] = {
    QuarantineKind.EVENT: "The event",
    QuarantineKind.RULES: "What rules say of the event",
    QuarantineKind.APPROVAL: "Approval",
    QuarantineKind.WAVE: "Wave",
    QuarantineKind.DRILL: "Drill",
    QuarantineKind.CACHE: "The cache",
    QuarantineKind.MACHINE: "Machine",
}

SPOTS: dict[str, SpotWords] = {
    "era-not-begun": SpotWords(
        "A restored database without a new era",
        "The newest lines of the timeline name transactions that this server has not reached: a dump was restored."
        " Until a new era begins, new lines come before old ones, streams do not tell them and they are not sealed.",
        "Run “drydock-fleet begin_era” as the owner of the tables.",
    ),
    "document-lacking": SpotWords(
        "Documents that are not here",
        "Reminding of a document that this database never had, as after a backup was restored: {names:some}. What Azure"
        " lists there may be missing here.",
        "Upgrade the agent and restart it. Or stop it, delete spool.sqlite3 in its state folder, and start it again.",
    ),
    "reports-quarantined": SpotWords(
        "Machines with quarantined reports",
        "Within the last hour these machines reported more than one machine may: {names:some}. What is beyond the"
        " bounds is kept as received and quarantined; events that name the machine itself are not affected.",
        "See the timeline of the machine for what it reported. If you did not expect it, revoke the machine.",
    ),
    "many-spools": SpotWords(
        "Agents that restart their spool too often",
        "Up to {most} new state folders within a day: {names:some}. Two agents may be using one identity, or the folder"
        " does not outlive the agent.",
        "See to it that each machine has one agent, and that its state folder is kept, in a container on a volume.",
    ),
    "set-aside": SpotWords(
        "What cannot be advanced",
        lambda values, reader: (
            f"{ASIDE.get(values['what'], values['what'])} {some(values['names'])} cannot be advanced: {values['why']}."
            f" It was tried {counted(values['tries'], 'time')} and is retried automatically. Everything else continues."
        ),
        "Decide it manually if it is urgent, and report this text and the log of the backend.",
    ),
    "switched-off": SpotWords(
        "Scheduled Events may be switched off",
        "No machine of the set has had a good answer for {hours} hours, and Azure switches Scheduled Events off after"
        " 24 hours without a request. Another program on the machines may still ask.",
        BRING_BACK,
    ),
    "near-switch-off": SpotWords(
        "Scheduled Events are about to be switched off",
        "No machine of the set has had a good answer for {hours} hours. After 24 hours without a request Azure"
        " switches Scheduled Events off.",
        BRING_BACK,
    ),
    "metadata-unavailable": SpotWords(
        "Agents without an answer from the metadata service",
        lambda values, reader: (
            f"{_problem(values['problem'])[0]} These agents receive no events: {some(values['names'])}."
        ),
        lambda values, reader: _problem(values["problem"])[1],
    ),
    "agent-silent": SpotWords(
        "Silent agents",
        "Not heard, or without a good answer from the metadata service, for some time: {names:some}.",
        "Check that the machine and its agent are running, and what “drydock-agent check” says there.",
    ),
    "agent-gone": SpotWords(
        "Agents that are gone",
        "Not heard for more than a day: {names:some}.",
        "Revoke it if the machine no longer exists; otherwise bring its agent back.",
    ),
    "agent-late": SpotWords(
        "Late agents",
        "Not heard recently: {names:some}. Their votes and orders wait until they are heard again.",
        "Wait a few minutes; if nothing changes, check the network between the machine and Drydock.",
    ),
    "agent-never-heard": SpotWords(
        "Agents never heard",
        "Enrolled but never heard: {names:some}.",
        "Check the agent's log: it enrolled, so it can reach Drydock.",
    ),
    "waits-for-admission": SpotWords(
        "Machines that wait for admission",
        "A machine enrols as {names:some} without the credential of that machine, or as a revoked one.",
        "Check the request on the Admissions page: admit the machine, or refuse any other agent.",
    ),
    "admits-by-itself": SpotWords(
        "Sets that admit machines automatically",
        "Until {until:time}, any caller with a join token for this set and the vmId of one of its machines that is not"
        " live is admitted as that machine without approval.",
        "End the rule on the set's page as soon as all machines are back.",
    ),
    "states-another-set": SpotWords(
        "Machines of which another set is stated",
        "{names:some}: {warning}",
        "What Azure announces to the other set does not count here: find out which of the two is right.",
    ),
    "lists-of-another-set": SpotWords(
        "Machines that list events of another set",
        _lists_of,
        "If they are machines of that set, name it in their configuration, or merge the two sets on the page of this"
        " one. If they are not, find out how they know the event: they have no vote on it.",
    ),
    "name-held": SpotWords(
        "Machines that call themselves as others do",
        "{names:some} would be called {called:some} by what the agent says, but another machine of the set was called"
        " so first, and is heard: what Azure announces for that name counts for the other one.",
        "If the machine was created again, it gets the name once the old one is silent, or at once when you revoke the"
        " old one. If not, find out why it reports this name.",
    ),
    "no-agent": SpotWords(
        "Machines without an agent",
        "{names:machine of the imported inventory has|machines of the imported inventory have} no agent: {names:some}.",
        "Install the agent there, or import a newer inventory with --complete if the machine no longer exists.",
    ),
    "cache-unheard": SpotWords(
        "Caches without a listener",
        _unheard,
        "{supported:?See the page of the cache; have agents on at least two machines listen.|Make the programs that use"
        " it detect lost connections themselves, and remove it from the caches of the agents.}",
    ),
    "wrong-clock": SpotWords("Wrong clocks", _wrong_clock, "Fix the machine's time synchronisation."),
    "agent-too-old": SpotWords(
        "Agents too old",
        _too_old,
        "Upgrade the agents to the backend's version; each may be restarted at any time.",
    ),
    "signatures-unchecked": SpotWords(
        "Agents that do not check signatures",
        "{names:some} would start an event for an order forged on the network path: the agent does not check"
        " signatures.",
        "Install the agent there with its extra “signed”, as the install command next to a join token does. Check that"
        " DRYDOCK_SIGNED_ORDERS is not “never”,"
        " and give it the key that drydock-fleet list_signing_keys prints: drydock-agent trust KEY.",
    ),
    "no-signing-key": SpotWords(
        "Agents without a signing key",
        "{names:some} can check signatures, but trust no key: every order is taken unchecked, or with"
        " DRYDOCK_SIGNED_ORDERS=always refused.",
        "Run “drydock-agent trust KEY” there, with the key that drydock-fleet list_signing_keys prints.",
    ),
    "strange-signing-keys": SpotWords(
        "Agents that trust other signing keys",
        "{names:some} trust none of Drydock's signing keys, and refuse every order.",
        "If Drydock has lost its keys, run “drydock-agent trust KEY” there. If it has not, find out who gave the agent"
        " its keys.",
    ),
    "upgrades-unannounced": SpotWords(
        "Upgrades that are not announced",
        "The imported inventory says that OSImageNotificationProfile is not enabled: upgrades and reimages of the"
        " operating system come without an event.",
        ENABLE,
    ),
    "size-without-upgrade-events": SpotWords(
        "Sizes without events for upgrades",
        "Machines of size {sizes:some} never get events for upgrades and reimages of their operating system: the"
        " series G, M, N and H have none.",
        "Plan such upgrades yourself; every other event is announced as usual.",
    ),
    "zone-without-poller": SpotWords(
        "Zones without a poller",
        "No live agent of the set is in zone {zone}. Microsoft's page says that delivery does not depend on zones;"
        " one issue thread says that a zonal scale set needs a poller in each zone.",
        "Have at least one live agent in zone {zone}, to be on the safe side.",
    ),
    "upgrades-unknown": SpotWords(
        "Upgrades that may not be announced",
        "Upgrades and reimages of a scale set's operating system are announced only where its"
        " OSImageNotificationProfile is enabled; a machine cannot see that, and no inventory has said it.",
        f"Import what “az vmss list” prints. {ENABLE}",
    ),
    "unnamed-set": SpotWords(
        "Sets without a name",
        _unnamed,
        "Name it on its page, state it in the agent's configuration or a tag, or import an inventory."
        " Sets without a name whose machines list the same events are merged automatically.",
    ),
}

SENTENCES: dict[str, Sentence] = {
    **{f"{code}.reason": words.reason for code, words in SPOTS.items()},
    **{f"{code}.title": words.title for code, words in SPOTS.items()},
    **{f"{code}.advice": words.advice for code, words in SPOTS.items()},
}


def _places(row: TimelineRow) -> str:
    """Return a phrase such as `12 sets: db, web and 10 more`."""
    what = "caches" if row.data["code"] == "cache-unheard" else "sets"
    return f"{row.data['count']} {what}: {_names(row)}"


def _names(row: TimelineRow) -> str:
    names = [one_line(name, 64) for name in row.data["names"]]
    # Not all names are stored.
    return some([*names, *[""] * (row.data["count"] - len(names))], 5)


def _is_of_many(row: TimelineRow) -> bool:
    return "places" in row.data["values"]


def _quiet(row: TimelineRow, reader: Reader) -> str:
    of_cache = row.data["code"] == "cache-unheard"
    if _is_of_many(row):
        return f"{'No agent listens to' if of_cache else 'Not heard any more are machines of'} {_places(row)}."
    if of_cache:
        return f"No agent listens to {row.data['of']} any more: what is announced now is lost."
    return f"Not heard any more in {row.data['of']}: {_names(row)}."


def _unwatched(row: TimelineRow, reader: Reader) -> str:
    lost = "nothing that Azure announces there would be seen"
    if _is_of_many(row):
        return f"No live agent watches {_places(row)}; {lost}."
    return f"No live agent watches {row.data['of']} any more: {lost}. Not live: {_names(row)}."


def _opened(row: TimelineRow, reader: Reader) -> str:
    title = TROUBLES[row.data["code"]]
    if _is_of_many(row):
        return f"{title}, in {_places(row)}."
    where, who = (f" in {row.data['of']}" if row.data["of"] else ""), _names(row)
    return f"{title}{where}{f': {who}' if who else ''}."


def _closed(row: TimelineRow, reader: Reader) -> str:
    return f"Over: {_opened(row, reader)}"


def _of_storage(row: TimelineRow, reader: Reader) -> str:
    code, values = row.data["code"], row.data["values"]
    if code == "not-sealed":
        return f"The timeline has not been sealed since {times.at(values['at'], reader)}: see what Celery's log says."
    if code == "database-large":
        size, most = values["size"] / 1024**3, values["most"] / 1024**3
        return f"The database holds {size:.1f} of {most:.0f} GB: give it more room, or remove what is old."
    if code == "partition-late":
        return (
            f"No partition begins soon enough of {', '.join(values['tables'])}: nothing is lost, the last one grows."
            " See what Celery's log says, or run `drydock-fleet make_partitions` as the owner of the tables."
        )
    if code == "archive-fails":
        return (
            f"Nothing leaves for the archive since {times.at(values['at'], reader)}: {FAULTS[values['fault']]}."
            " All of it stays in the database until that is put right."
        )
    return (
        f"The database has used {values['transactions']} transactions since its oldest row was frozen, and stops"
        " writing at about two thousand million: see why its autovacuum does not come through."
    )


# Troubles that are reported automatically: the name in their entry when they end and, for blind spots, when they begin.
TROUBLES: dict[str, str] = {
    "set-unwatched": "No live agent",
    "agent-silent": "Silent agents",
    "cache-unheard": "Caches without a listener",
    "near-switch-off": SPOTS["near-switch-off"].title,
    "document-lacking": SPOTS["document-lacking"].title,
    "reports-quarantined": SPOTS["reports-quarantined"].title,
    "wrong-clock": "Wrong clocks",
    "waits-for-admission": SPOTS["waits-for-admission"].title,
    "set-aside": SPOTS["set-aside"].title,
    "era-not-begun": SPOTS["era-not-begun"].title,
    "clocks-wrong": "The clock of a process of Drydock is wrong, so it neither decides nor sends",
    "audit-failed": "The timeline is not as it was sealed",
    "not-sealed": "The timeline is not sealed",
    "database-large": "The database is nearly as large as it may be",
    "partition-late": "The next partition of a large table is missing",
    "transactions-run-out": "The database runs out of transactions",
    "archive-fails": "Nothing leaves for the archive",
}

ENTRIES: dict[EntryKind, EntryText] = {
    EntryKind.SOURCE_QUIET: _quiet,
    EntryKind.SET_UNWATCHED: _unwatched,
    EntryKind.COVERAGE_OPENED: _opened,
    EntryKind.COVERAGE_CLOSED: _closed,
    EntryKind.AUDIT_FAILED: lambda row, reader: (
        f"The timeline is not as it was sealed: seal {row.data['values']['seal']} does not fit its rows."
        " Run “drydock-fleet verify_audit”, which says what differs."
    ),
    EntryKind.STORAGE_TROUBLE: _of_storage,
}
