"""Texts about sets: kinds, warnings, and timeline entries."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fleet.domain.sets import MAX_NAME, NAMED_KINDS, OUTSIDE, PROVISIONAL, SetSource
from fleet.domain.timeline import EntryKind
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording.sentences import EntryText, Sentence, fill, quoted
from fleet.wording.times import Reader

KINDS = {
    "availability_set": "availability set",
    "scale_set": "scale set",
    "cloud_service": "cloud service",
    "standalone": "standalone machine",
    PROVISIONAL: "provisional set",
}


@dataclass(frozen=True, slots=True)
class SourceWords:
    """Texts about the source that determines a machine's set. `label` is shown next to the set; `correct` states what
    to correct if the set is wrong.

    `{tag}` is replaced by the name of the tag.
    """

    label: str
    name: str
    correct: str


SOURCES: dict[SetSource, SourceWords] = {
    SetSource.CONFINEMENT: SourceWords("confined to this set", "", ""),
    SetSource.CONFIGURATION: SourceWords(
        "by configuration",
        "its configuration",
        "DRYDOCK_AVAILABILITY_SET on the machine",
    ),
    SetSource.TAG: SourceWords("by tag", "its tag {tag}", "the tag {tag} of the VM"),
    SetSource.SCALE_SET: SourceWords("by scale set metadata", "Azure's scale set metadata", ""),
    SetSource.INVENTORY: SourceWords(
        "by inventory", "the imported inventory", "the inventory by importing a newer one"
    ),
}


def _disagree(values: Mapping[str, Any], reader: Reader) -> str:
    """Return the warning that sources name different sets: what each states, which one applies, and what to do.

    If the names are equal, the places are added, because two sets with one name in two resource groups are different
    sets.
    """
    stated, tag = values["statements"], values["tag"]
    names = [f"{KINDS[each['kind']]} {each['name']}" for each in stated]
    same_name = len({name.lower() for name in names}) < len(names)
    sources = [SOURCES[SetSource(each["source"])] for each in stated]
    said = ", ".join(
        f"{source.name.format(tag=tag)} states {name}{_where(each) if same_name else ''}"
        for each, name, source in zip(stated, names, sources, strict=True)
    )
    first = sources[0].name.format(tag=tag)
    ways = [source.correct.format(tag=tag) for source in sources if source.correct]
    return (
        f"The set of this machine is not clear: {said}. Until they agree, {first} applies. Correct the wrong one:"
        f" {', or '.join(ways)}. If both names mean one set, merge the two sets."
    )


def _outside(values: Mapping[str, Any], reader: Reader) -> tuple[str, str, str]:
    """Return three texts: where a confined machine may be, what other sources state, and how to correct that."""
    first, *others = values["statements"]
    same_name = any((each["kind"], each["name"].lower()) == (first["kind"], first["name"].lower()) for each in others)

    def shown(each: Mapping[str, str]) -> str:
        return f"{KINDS[each['kind']]} “{each['name']}”{_where(each) if same_name else ''}"

    tag, sources = values["tag"], [SOURCES[SetSource(each["source"])] for each in others]
    names = [one.name.format(tag=tag) for one in sources]
    said = ", ".join(f"{name} states {shown(each)}" for name, each in zip(names, others, strict=True))
    return shown(first), said, ", or ".join(one.correct.format(tag=tag) for one in sources if one.correct)


def _states_another(values: Mapping[str, Any], reader: Reader) -> str:
    home, said, ways = _outside(values, reader)
    correct = f"Correct {ways}; or let" if ways else "Let"
    return (
        f"This machine is confined to {home}, but {said}, which Drydock ignores. {correct} an admin move the machine."
    )


def _enrols_elsewhere(values: Mapping[str, Any], reader: Reader) -> str:
    home, said, ways = _outside(values, reader)
    correct = f"Correct {ways}, or use" if ways else "Use"
    return f"This join token is for machines of {home} alone, but {said}. {correct} a join token for that set."


def _where(stated: Mapping[str, str]) -> str:
    parts = (
        ("placement_group", " in placement group "),
        ("resource_group", " in resource group "),
        ("subscription", " of subscription "),
    )
    return "".join(f"{said}{stated[name]}" for name, said in parts if stated[name])


def _names_no_set(values: Mapping[str, Any], reader: Reader) -> str:
    return f"{values['stated']!r} names no set: write [kind:]name, with a kind of {', '.join(NAMED_KINDS)}."


def _stated_unreadably(values: Mapping[str, Any], reader: Reader) -> str:
    said = SOURCES[SetSource(values["source"])].name.format(tag=values["tag"])
    return f"{said[0].upper()}{said[1:]} cannot be read: {_names_no_set(values, reader)}"


# Requirements of a set, as sentences name them.
REQUIREMENTS = {
    "second_person": "the second person",
    "step_up": "the proof of identity",
    "exempt_service_accounts": "the proof of identity of service accounts",
    "min_live": "the number of live machines",
    "service": "the guards of its service",
}


def _lowered(names: Iterable[str]) -> str:
    return " and ".join(REQUIREMENTS.get(name, name) for name in names)


SENTENCES: dict[str, Sentence] = {
    "names-no-set": _names_no_set,
    "stated-unreadably": _stated_unreadably,
    "sets-disagree": _disagree,
    OUTSIDE: _states_another,
    "enrols-elsewhere": _enrols_elsewhere,
    "set-unknown": "There is no set with this id.",
    "service-not-found": "No set and no cache belongs to a service “{name}”.",
    "set-named-already": "This set has a name: “{name}”. Only a provisional set can be named.",
    "set-name-unusable": f"A name has 1 to {MAX_NAME} characters without “|”.",
    "set-kind-alone": "Enter the kind together with a name.",
    "set-exists": "There is already a set of this kind and name: “{name}”.",
    "merge-into-itself": "A set cannot be merged into itself.",
    "merged-already": "“{name}” was merged into another set already.",
    "merge-into-provisional": "A named set cannot be merged into a provisional set. Merge the provisional set into"
    " the named one.",
    "merge-across-subscriptions": "Sets of different subscriptions cannot be merged.",
    "admission-rule-unnamed": "Name this set first: automatic admission needs a join token for a named set.",
    "admission-rule-time": "Enter a time in the future, at most {days} days from now.",
    "set-unnamed": "This set has no name yet. State the name in the configuration of the agents, in a tag or by an"
    " inventory, or let an administrator enter it.",
    "set-silent": "No recent report: {names:some}.",
    "set-expected": "Enrolled, but without a report so far: {names:some}.",
    "set-without-agents": "According to the imported inventory, {names:machine has|machines have} no agent:"
    " {names:some}.",
    "set-unwatched": "No live agent: Drydock does not see new events of this set.",
    "set-lowering-proposed": lambda values, reader: (
        f"An administrator proposed to lower {_lowered(values['lowered'])} of this set. Another administrator has to"
        " make the same change within a day."
    ),
    "lowering-wants-step-up": "Confirm your identity to lower the requirements of a set.",
    "set-name-twice": "Two machines have the same resource name.",
    "set-foreign": "{machine} of “{set}” lists an open event of this set, and only machines of one set see the same"
    " events. Correct the set of the machine, or merge the two sets.",
    "set-apart": "{name} ({apart})",
    "unnamed-set-label": "unnamed set",
    "first-machine": "{names:some 1}",
    "some-machines": "{names:some 2}",
    "machine-warning": "{machine}: {warning}",
}


# Changes of a set by a user, by field.
CHANGED = {
    "service": "assigned the set to {service:?the service “{service}”|no service}",
    "second_person": "required a second person for {second_person:?every approval|an approval only if a guard requires"
    " it}",
    "step_up": "specified that approvers {step_up:?must|need not} confirm their identity",
    "exempt_service_accounts": "specified that service accounts {exempt_service_accounts:?can approve without"
    " confirmation|cannot approve}",
    "lowering": "proposed to lower {lowered}; another administrator has to agree",
    "min_live": "{min_live:?set a minimum of {min_live:live machine|live machines}|removed the minimum of live"
    " machines}",
    "runbook": "{runbook:?set the runbook to {runbook}|removed the runbook}",
    "admits_until": "specified that machines that enrol again without their credential {admits_until:?are admitted"
    " automatically until {admits_until:time}|wait for admission}",
}


def _changed(row: TimelineRow, reader: Reader) -> str:
    """Return the timeline sentence of a user's change to a set's name, service or requirements."""
    after, changes = row.after or {}, []
    if row.kind is EntryKind.SET_NAMED:
        changes.append(f"named the provisional set {row.data['was']} “{row.data['name']}”")
    lowered = _lowered(after.get("lowering") or ())
    shown = [text for name, text in CHANGED.items() if name in after and (lowered or name != "lowering")]
    changes += [fill(text, {**after, "lowered": lowered}, reader) for text in shown]
    return f"{row.actor} {' and '.join(changes)}.{quoted(row.why)}"


def _requirement_lowered(row: TimelineRow, reader: Reader) -> str:
    """Return the timeline sentence about requirements of a set that were lowered, or whose lowering is proposed."""
    names, where = _lowered(row.data["lowered"]), f"“{row.data['set']}”"
    match row.data["did"]:
        case "proposed":
            return f"{where}: an administrator proposed to lower {names}. Another one has to agree within a day."
        case "left":
            return f"Machine {row.data['name']} left {where} for a set that requires less: {names}."
    return f"{where} requires less than before: {names}. Open events keep the earlier requirements."


def _merged(row: TimelineRow, reader: Reader) -> str:
    source, target = (row.before or {})["sets"]
    if row.is_act:
        return f"{row.actor} merged “{source}” into “{target}”."
    if row.data["stated_by"]:
        return f"{row.data['stated_by']} states that “{source}” is “{target}”."
    return f"“{source}” was merged into “{target}”, because a machine lists the same event."


ENTRIES: dict[EntryKind, EntryText] = {
    EntryKind.SET_MERGED: _merged,
    EntryKind.SET_NAMED: _changed,
    EntryKind.SET_CHANGED: _changed,
    EntryKind.SERVICE_CHANGED: lambda row, reader: f"Service “{row.data['service']}”: {_changed(row, reader)}",
    EntryKind.SET_LOWERED: _requirement_lowered,
    EntryKind.SET_DISPUTED: lambda row, reader: f"Machine {row.data['name']}: {' '.join(row.data['warnings'])}",
    EntryKind.SET_AGREED: "Machine {name}: all sources agree on its set again.",
}
