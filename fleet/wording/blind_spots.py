"""Texts of blind spots: title, reason and advice of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleet.domain.scheduling import QuarantineKind
from fleet.domain.timeline import EntryKind
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording.sentences import EntryText, Sentence, counted, fill, some, spoken
from fleet.wording.timeline import FAULTS
from fleet.wording.times import Reader, one_line


@dataclass(frozen=True, slots=True)
class SpotWords:
    """Texts of a blind spot. `reason` and `advice` are templates that can use the machine `names` and the blind spot's
    other fields.
    """

    title: str
    reason: Sentence
    advice: Sentence


def _too_old(values: Mapping[str, Any], reader: Reader) -> str:
    versions = ", ".join(version or "an unknown version" for version in values["versions"])
    return (
        f"{some(values['names'])} run {versions}, older than Drydock's own {values['own']}."
        " Older agents may not report everything."
    )


def _wrong_clock(values: Mapping[str, Any], reader: Reader) -> str:
    offset = values["offset"]
    return (
        f"The clock of {some(values['names'])} is wrong by up to {abs(offset):.1f} seconds"
        f" ({'ahead' if offset > 0 else 'behind'}). Drydock corrects reported times, but not schedules of the machine"
        " itself."
    )


def _unheard(values: Mapping[str, Any], reader: Reader) -> str:
    host = values["names"][0]
    if not values["supported"]:
        return f"{host} publishes no maintenance notifications, so Drydock cannot see maintenance of this cache."
    why = f" ({some([spoken(said) for said in values['reasons']], 3)})" if values["reasons"] else ""
    return f"No agent listens to {host}{why}. Notifications are not repeated: those sent now are lost."


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
    """Return what a blind spot means, and what to do about it."""
    status = code.removeprefix("status-")
    other = f"The metadata service answers with status {status}."
    return PROBLEMS.get(code) or (other, f"{CHECK}. If it lasts, ask Azure's support.")


BRING_BACK = (
    "Start an agent of this set. Its requests keep Scheduled Events enabled; the first request may take two minutes."
)
ENABLE = "Enable OSImageNotificationProfile of the scale set if upgrades of its operating system should be announced."

# Quarantined kinds, at the beginning of a sentence.
KINDS: dict[str, str] = {
    QuarantineKind.EVENT: "The event",
    QuarantineKind.RULES: "The decision of rules about the event",
    QuarantineKind.APPROVAL: "Approval",
    QuarantineKind.WAVE: "Wave",
    QuarantineKind.DRILL: "Drill",
    QuarantineKind.CACHE: "The cache",
    QuarantineKind.MACHINE: "Machine",
}

SPOTS: dict[str, SpotWords] = {
    "era-not-begun": SpotWords(
        "A restored database without a new era",
        "The database was restored from a backup: the newest entries of the timeline have higher transaction numbers"
        " than this server. Until you begin a new era, new entries are sorted wrongly, not streamed and not sealed.",
        "Run “drydock-fleet begin_era” as the owner of the tables.",
    ),
    "document-lacking": SpotWords(
        "Documents missing after a restore",
        "These agents refer to documents that the database does not contain, probably after a restore: {names:some}."
        " Drydock may miss events of these machines.",
        "Upgrade and restart the agent. Otherwise stop the agent, delete spool.sqlite3 in its state folder, and start"
        " it: it then reports its current state.",
    ),
    "reports-quarantined": SpotWords(
        "Machines with quarantined reports",
        "Within the last hour these machines exceeded the limits for reports: {names:some}. Drydock stores the excess"
        " reports unprocessed. Events that name the machine itself are not affected.",
        "Check the reports on the timeline of the machine. If you did not expect them, revoke the machine.",
    ),
    "many-spools": SpotWords(
        "Agents with changing state folders",
        "Up to {most} new state folders within a day: {names:some}. Two agents may use one identity, or the folder is"
        " deleted with each restart.",
        "Run one agent on each machine and keep its state folder; in a container, use a volume.",
    ),
    "set-aside": SpotWords(
        "Objects that Drydock cannot process",
        lambda values, reader: (
            f"{KINDS.get(values['what'], values['what'])} {some(values['names'])} cannot be processed: {values['why']}."
            f" Drydock failed {counted(values['tries'], 'time')} and retries automatically. Everything else continues."
        ),
        "If it is urgent, start the event by hand. Report this text with the log of Drydock.",
    ),
    "switched-off": SpotWords(
        "Scheduled Events may be disabled",
        "No agent of the set has polled successfully for {hours} hours. Azure disables Scheduled Events after 24 hours"
        " without a request. Other programs on the machines may still poll.",
        BRING_BACK,
    ),
    "near-switch-off": SpotWords(
        "Scheduled Events will soon be disabled",
        "No agent of the set has polled successfully for {hours} hours. After 24 hours without a request Azure"
        " disables Scheduled Events.",
        BRING_BACK,
    ),
    "metadata-unavailable": SpotWords(
        "Agents without an answer from the metadata service",
        lambda values, reader: (
            f"{_problem(values['problem'])[0]} These agents receive no events: {some(values['names'])}."
        ),
        lambda values, reader: _problem(values["problem"])[1],
    ),
    "spool-unwritable": SpotWords(
        "Agents that cannot write to their disk",
        "The state folder is full or read-only: {names:some}. These agents report no new events and carry out no"
        " orders.",
        "Free disk space on the machine, or correct the permissions of the agent's state folder. The agent continues"
        " within a minute, and then reports what it has seen in the meantime.",
    ),
    "agent-silent": SpotWords(
        "Silent agents",
        "No recent report, or no recent successful poll of the metadata service: {names:some}.",
        "Check that the machine and the agent are running, then run “drydock-agent check” on the machine.",
    ),
    "agent-gone": SpotWords(
        "Agents that no longer report",
        "No report for more than a day: {names:some}.",
        "If the machine no longer exists, revoke it. Otherwise start its agent.",
    ),
    "agent-late": SpotWords(
        "Late agents",
        "The last report is overdue: {names:some}. Reports and orders of these machines are delayed.",
        "Wait a few minutes. If the agent stays late, check the network between the machine and Drydock.",
    ),
    "agent-never-heard": SpotWords(
        "Agents without a first report",
        "Enrolled, but without a report so far: {names:some}.",
        "Check the log of the agent. It enrolled, therefore it can reach Drydock.",
    ),
    "waits-for-admission": SpotWords(
        "Machines that wait for admission",
        "An agent enrols as {names:some} without the credential of that machine, or the machine was revoked.",
        "Check the request on the page Machines to admit, then admit or refuse it.",
    ),
    "admits-by-itself": SpotWords(
        "Sets that admit machines automatically",
        "Until {until:time}, any caller with a join token for this set and the vmId of one of its machines that is not"
        " live is admitted as that machine automatically.",
        "When all machines have enrolled again, end the automatic admission on the page of the set.",
    ),
    "states-another-set": SpotWords(
        "Machines that report another set",
        "{names:some}: {warning}",
        "Correct the set of the machine. Until then Drydock ignores events that Azure announces to the other set.",
    ),
    "lists-of-another-set": SpotWords(
        "Machines that list events of another set",
        "{names:some} may belong to {set:?“{set}”|a set without a name}, because an open event of that set is listed"
        " there. An EventId is no secret, therefore a user has to decide.",
        "If these machines belong to that set, correct their set or merge the two sets on the page of this set. If not,"
        " find out how they know the event. Their reports about it do not count.",
    ),
    "name-held": SpotWords(
        "Machines with the name of another machine",
        "{names:some} reports the name {called:some}, but another live machine of the set has this name already. Events"
        " that name it count for the other machine.",
        "If the machine was created again, revoke the old machine, or wait until it is silent. Otherwise find out why"
        " the machine reports this name.",
    ),
    "no-agent": SpotWords(
        "Machines without an agent",
        "{names:machine of the imported inventory has|machines of the imported inventory have} no agent: {names:some}.",
        "Install an agent on the machine. If the machine no longer exists, import a newer inventory with --complete.",
    ),
    "cache-unheard": SpotWords(
        "Caches without a listener",
        _unheard,
        "{supported:?Let agents on at least two machines listen, and check the page of the cache.|Let the clients of"
        " the cache detect lost connections, and remove the cache from the setting of the agents.}",
    ),
    "wrong-clock": SpotWords("Wrong clocks", _wrong_clock, "Fix the machine's time synchronisation."),
    "agent-too-old": SpotWords(
        "Agents too old",
        _too_old,
        "Upgrade the agents to the version of Drydock. You can restart an agent at any time.",
    ),
    "signatures-unchecked": SpotWords(
        "Agents that do not check signatures",
        "{names:some} would accept a forged order, because the agent does not check signatures.",
        "Install the agent with its extra “signed”, as the install command of a join token does. Check that"
        " DRYDOCK_SIGNED_ORDERS is not “never”. Then run “drydock-agent trust KEY” with the key from"
        " “drydock-fleet list_signing_keys”.",
    ),
    "no-signing-key": SpotWords(
        "Agents without a signing key",
        "{names:some} can check signatures, but trust no key: the agent accepts every order, or refuses every order"
        " with DRYDOCK_SIGNED_ORDERS=always.",
        "Run “drydock-agent trust KEY” on the machine, with the key from “drydock-fleet list_signing_keys”.",
    ),
    "strange-signing-keys": SpotWords(
        "Agents that trust other signing keys",
        "{names:some} trust none of Drydock's signing keys, and refuse every order.",
        "If Drydock has lost its keys, run “drydock-agent trust KEY” on the machine. If not, find out where the keys"
        " of the agent come from.",
    ),
    "upgrades-unannounced": SpotWords(
        "Upgrades that are not announced",
        "According to the imported inventory, OSImageNotificationProfile is not enabled: Azure does not announce"
        " upgrades and reimages of the operating system.",
        ENABLE,
    ),
    "size-without-upgrade-events": SpotWords(
        "Sizes without events for upgrades",
        "Azure announces no upgrades and reimages of the operating system for machines of size {sizes:some} (series G,"
        " M, N and H).",
        "Plan these upgrades yourself. Azure announces all other events as usual.",
    ),
    "zone-without-poller": SpotWords(
        "Zones without a poller",
        "No live agent of the set is in zone {zone}. According to Microsoft's documentation, delivery does not depend"
        " on zones. According to one issue thread, a zonal scale set needs a poller in each zone.",
        "To be safe, run at least one agent in zone {zone}.",
    ),
    "upgrades-unknown": SpotWords(
        "Upgrades that may not be announced",
        "Upgrades and reimages of a scale set's operating system are announced only where its"
        " OSImageNotificationProfile is enabled. Machines cannot report this, and no inventory has stated it.",
        f"Import the output of “az vmss list”. {ENABLE}",
    ),
    "unnamed-set": SpotWords(
        "Sets without a name",
        "The set of {names:?{names:some}|these machines} is unknown. Drydock cannot see which other machines belong to"
        " the set, and does not count them when it checks an event.",
        "Enter a name on the page of the set, state it in the configuration of the agent or in a tag, or import an"
        " inventory. Sets without a name whose machines list the same events are merged automatically.",
    ),
}


def shared_advice(code: str) -> str:
    """Return the advice for a kind of blind spots if it is the same for all of them, else an empty text."""
    advice = SPOTS[code].advice
    return advice if isinstance(advice, str) and "{" not in advice else ""


SENTENCES: dict[str, Sentence] = {
    f"{code}.{part}": getattr(words, part) for code, words in SPOTS.items() for part in ("title", "reason", "advice")
}


def _places(row: TimelineRow) -> str:
    """Return the number and names of the sets of an entry about many, such as `12 sets: db, web and 10 more`."""
    if "places" not in row.data["values"]:
        return ""
    return f"{row.data['count']} {'caches' if row.data['code'] == 'cache-unheard' else 'sets'}: {_names(row)}"


def _names(row: TimelineRow) -> str:
    names = [one_line(name, 64) for name in row.data["names"]]
    # Not all names are stored.
    return some([*names, *[""] * (row.data["count"] - len(names))], 5)


def _quiet(row: TimelineRow, reader: Reader) -> str:
    of_cache = row.data["code"] == "cache-unheard"
    if places := _places(row):
        return f"{'No agent listens to' if of_cache else 'Machines no longer report in'} {places}."
    if of_cache:
        return f"No agent listens to {row.data['of']} any more: notifications are lost."
    return f"Machines of {row.data['of']} no longer report: {_names(row)}."


def _unwatched(row: TimelineRow, reader: Reader) -> str:
    if places := _places(row):
        return f"No live agent in {places}; Drydock sees no event there."
    return f"No live agent in {row.data['of']} any more: Drydock sees no event there. Not live: {_names(row)}."


def _opened(row: TimelineRow, reader: Reader) -> str:
    title = TROUBLES[row.data["code"]]
    if places := _places(row):
        return f"{title}, in {places}."
    where, who = (f" in {row.data['of']}" if row.data["of"] else ""), _names(row)
    return f"{title}{where}{f': {who}' if who else ''}."


def _of_storage(row: TimelineRow, reader: Reader) -> str:
    code, values = row.data["code"], row.data["values"]
    if code == "database-large":
        values = values | {name: values[name] / 1024**3 for name in ("size", "most")}
    elif code == "archive-fails":
        values = values | {"fault": FAULTS[values["fault"]]}
    return fill(STORAGE[code], values, reader)


STORAGE = {
    "not-sealed": "The timeline has not been sealed since {at:time}: check the log of Celery.",
    "database-large": "The database uses {size:.1f} of {most:.0f} GB: increase its size, or archive old data.",
    "partition-late": "The next partition of {tables:list} is missing. Nothing is lost: the last one grows. Check the"
    " log of Celery, or run `drydock-fleet make_partitions` as the owner of the tables.",
    "archive-fails": "Archiving has failed since {at:time}: {fault}. All data is retained in the database until this is"
    " fixed.",
    "transactions-run-out": "The database has used {transactions} transactions since its oldest row was frozen, and"
    " stops writing at about two thousand million: find out why autovacuum does not finish.",
}

# Troubles that are reported automatically: the name in their entry when they end and, for blind spots, when they begin.
TROUBLES: dict[str, str] = {
    "set-unwatched": "No live agent",
    **{code: words.title for code, words in SPOTS.items()},
    "clocks-wrong": "A server of Drydock has a wrong clock, so it neither decides nor sends",
    "audit-failed": "The timeline does not match its seals",
    "not-sealed": "The timeline is not sealed",
    "database-large": "The database is nearly full",
    "partition-late": "The next partition of a large table is missing",
    "transactions-run-out": "The database runs out of transactions",
    "archive-fails": "Archiving fails",
}

ENTRIES: dict[EntryKind, EntryText] = {
    EntryKind.SOURCE_QUIET: _quiet,
    EntryKind.SET_UNWATCHED: _unwatched,
    EntryKind.COVERAGE_OPENED: _opened,
    EntryKind.COVERAGE_CLOSED: lambda row, reader: f"Resolved: {_opened(row, reader)}",
    EntryKind.AUDIT_FAILED: "The timeline was changed after sealing: seal {values[seal]} does not match its rows. Run"
    " “drydock-fleet verify_audit” to see the difference.",
    EntryKind.STORAGE_TROUBLE: _of_storage,
}
