"""Wording of machines: enrolment, inventories, and the entries about machines."""

from collections.abc import Mapping
from typing import Any

from fleet.domain.orders.series import SignatureCheck
from fleet.domain.timeline import EntryKind
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording import times
from fleet.wording.sentences import EntryText, Sentence, machine_named, quoted
from fleet.wording.times import Reader


def _strange(values: Mapping[str, Any], reader: Reader) -> str:
    kind = values["type"]
    what = f"of type {kind}" if kind else "none of the things that an inventory is made of"
    return (
        f"Item {values['number']} is {what}: print it with `az vm list`, `az vm availability-set list`,"
        " `az vmss list-instances` or `az vmss list`."
    )


SENTENCES: dict[str, Sentence] = {
    "machines-came": "{count} machines enrolled: {names:some}.",
    "move-into-provisional": "A machine is moved into a set that has a name: name that one first.",
    "name-held": "It calls itself {called}, and another machine of its set is taken for that one: of those that are"
    " heard, the other one was called so first.",
    "machine-unknown": "There is no machine with this id.",
    "admissions-full": "Too many machines wait for admission already.",
    "admission-twice": "Several of these enrol as {name}: admit the one that it is.",
    "admission-unknown": "No agent waits for admission under one of these ids: reload the list.",
    "machine-id-unusable": "machine_id is empty or longer than {most} characters.",
    "enrolled-again": "Enrolled again at {at:time}: the previous credential was revoked.",
    "attested-too-large": "The attested document is too large: it may have {most:,} bytes.",
    "attested-not-base64": "The attested document is not base64.",
    "attested-not-der": "The attested document is not PKCS #7 as Azure writes it, in DER.",
    "attested-detached": "The attested document has no content.",
    "attested-signers": "The attested document has {count} signers, and Azure's have one.",
    "attested-signer-certificate": "The signer of the attested document names one certificate, and {count} of that name"
    " are in it.",
    "attested-certificate-unreadable": "A certificate of the attested document cannot be read.",
    "attested-algorithm": "The attested document is signed by another algorithm than SHA-256 with RSA.",
    "attested-attributes": "The attested document has attributes next to its signature; Azure's documents have none.",
    "attested-key": "The key that signed the attested document is not RSA of at least {least:,} bits.",
    "attested-signature": "The signature of the attested document is not over its content.",
    "attested-subject": "The certificate that signed the attested document is not a metadata service's of Azure.",
    "attested-use": "The certificate that signed the attested document is not for servers that sign.",
    "attested-certificate-over": "The certificate that signed the attested document is not valid now; it ends"
    " {at:time}.",
    "attested-no-roots": "No roots of attested documents are configured: see the setting ATTESTED_ROOTS.",
    "attested-chain": "The certificates of the attested document lead to no root that counts here; the last is issued"
    " by {issuer}. If that is Azure's, put its root into the folder of ATTESTED_ROOTS.",
    "attested-intermediate": "Intermediate wanted: {url}",
    "attested-many-intermediates": "More than {most} intermediates came with the attested document.",
    "attested-nonce": "The nonce of the attested document was not given here.",
    "attested-nonce-over": "The nonce of the attested document is older than {seconds} seconds: ask for a new one.",
    "attested-nonce-spent": "The nonce of the attested document was used before: ask for a new one.",
    "attested-times": "The times of the attested document are not as Azure writes them.",
    "attested-expired": "The attested document is not valid now: it ends {at:time}.",
    "attested-vm-id": "The attested document states no vmId.",
    "attested-subscription": "The attested document states no subscription.",
    "attested-subscription-strange": "The subscription {subscription} is not among those that may enrol here: see the"
    " setting ATTESTED_SUBSCRIPTIONS.",
    "attested-other-machine": "The attested document is that of another machine.",
    "attested-unreadable": "The attested document cannot be read.",
    "attested-other-subscription": "Azure says that this machine is in the subscription {subscription}, and it says"
    " another of itself.",
    "bearer-over": "Calls with a credential alone are over here: install an agent of this release, then have it"
    " admitted.",
    "remedy-policy": "Name the machine's subscription, or choose another way to enrol, on First steps; where settings"
    " state these, change ENROLMENT_POLICY or ATTESTED_SUBSCRIPTIONS.",
    "remedy-attested": "See “Who may enrol” in the agent's documentation: certificates and clocks are the usual causes."
    " A machine without a usable document enrols with a join token where the policy allows that.",
    "remedy-set": "Give the machine the set of its join token, or create a join token for the set that it states.",
    "remedy-join-token": "Create a join token and set it as DRYDOCK_JOIN_TOKEN on the machine.",
    "remedy-admissions": "Admit or refuse the machines that wait for admission.",
    "remedy-other": "Correct what the reason names on the machine; its agent tries again by itself.",
    "enrolment-refused": "The enrolment was refused.",
    "entrance-stated": "The setting ENROLMENT_POLICY states {policy}: change it there.",
    "entrance-unknown": "Choose how machines enrol.",
    "entrance-subscription": "Enter at most {most} subscription ids, such as 00000000-0000-0000-0000-000000000000.",
    "entrance-no-subscription": "Enter the id of the subscription whose machines may enrol with an attested document.",
    "admission-twins": "{count} more ask as the same machine.",
    "admission-subscription": "Azure says that it is in the subscription {subscription}, which is not among those that"
    " may enrol.",
    "admission-namesake": "Another machine here is called {name} already.",
    "admission-other-name": "The machine that is known is called {name}.",
    "admission-other-subscription": "The machine that is known is in the subscription {subscription}.",
    "admission-other-region": "The machine that is known is in {region}.",
    "admission-other-group": "The machine that is known is in the resource group {name}.",
    "admission-other-set": "The machine that is known is in the set {name}.",
    "admission-other-address": "The machine that is known has other addresses: {addresses:list}.",
    "attested-required": "Machines enrol here with an attested document of Azure's, and none came.",
    "join-token-time": "A join token must be valid for some time, and for at most {days} days.",
    "join-token-unknown": "This join token is not known here. Make one and configure it.",
    "join-token-over": "This join token has expired or was revoked. Make a new one.",
    "join-token-uses": "A join token admits from 1 to {most:,} machines.",
    "join-token-used-up": "This join token has admitted {count:,} machines, as many as it may. Make a new one.",
    "join-token-two-sets": "Name the set of a join token, or choose one that is here; not both.",
    "join-token-which-set": (
        "There are several sets of this kind called “{name}”, in {places:list}. Choose the one that is meant, by id."
    ),
    "join-token-none": "There is no join token that begins like this.",
    "inventory-no-json": "This is not JSON: print it with `az … --output json`.",
    "inventory-no-object": "Item {number} is not an object: this is not what `az` prints with `--output json`.",
    "inventory-strange": _strange,
}

SIGNATURES: dict[str, str] = {
    SignatureCheck.CHECKED: "checked",
    SignatureCheck.NONE: "not checked",
    SignatureCheck.NO_KEY: "no key to check them by",
    SignatureCheck.STRANGE_KEYS: "by other keys than Drydock's",
}

# For each way to install the agent: its platform, and the requirements shown with it.
PLATFORMS: dict[str, tuple[str, str]] = {
    "linux": ("Linux with systemd", "In a shell on the machine. It needs Python 3.11 or newer with its venv module."),
    "windows": ("Windows", "In PowerShell as administrator. It needs Python 3.11 or newer with its launcher, py."),
    "cloud-init": ("New Linux machines, by cloud-init", "The custom data of a VM or of a scale set's model, as it is."),
    "azure-cli": (
        "Linux machines from afar, with az",
        "Where you are logged in to Azure; put in the names of your own.",
    ),
    "other": ("Anything else", "The settings of each new agent, as environment variables; an .env file takes them."),
}

# Effect of an inventory on a machine.
CHANGES: dict[str, str] = {
    "dropped": "dropped",
    "changed": "changed",
    "new": "new",
    "same": "as before",
}

LABELS = {
    "resource_name": "name",
    "availability_set_id": "set",
    "fault_domain": "fault domain",
    "update_domain": "update domain",
    "zone": "zone",
    "region": "region",
    "size": "size",
    "os_type": "system",
}


def _changed(row: TimelineRow, reader: Reader) -> str:
    """Return the sentence of a change that a machine reported, or of a move caused by an inventory, a shared event or a
    person.
    """
    name = machine_named(row.data["name"])
    match row.data.get("because"):
        case "inventory":
            return f"{name} is in “{row.data['set']}” according to the imported inventory."
        case "event":
            return f"{name} is in “{row.data['set']}” now, and the event with it."
        case "person":
            return f"{row.actor} moved {name} into “{row.data['set']}” and confined it there.{quoted(row.why)}"
        case "lifted":
            return (
                f"{row.actor} lifted the confinement of {name}: what is stated about it counts, and it is in"
                f" “{row.data['set']}”.{quoted(row.why)}"
            )
    return f"{name} says that its {', '.join(LABELS[field] for field in row.data['changes'])} changed."


def _imported(row: TimelineRow, reader: Reader) -> str:
    found = row.after or {}
    dropped = f", {found['dropped']} dropped" if row.data["complete"] else ""
    # Since 0.2.0.
    refused = [
        f" Refused: that {one['machine']} is in {one['stated']}; it is confined to {one['confined_to']}."
        for one in found.get("refused", [])
    ]
    return (
        f"An inventory was imported by {row.actor}: {found['machines']} machines, {found['new']} of them new,"
        f" {found['without_agent']} without an agent{dropped}.{''.join(refused)}"
    )


def _identified(row: TimelineRow, reader: Reader) -> str:
    before, after = (row.before or {}).get("vm_id", ""), (row.after or {}).get("vm_id", "")
    return (
        f"{machine_named(row.data['name'])} had the id {before} while Azure gave it no vmId. It has the vmId {after}:"
        " both are one machine."
    )


def _waits(row: TimelineRow, reader: Reader) -> str:
    why = "it was revoked" if row.data["revoked"] else "without the credential that this machine has"
    address = row.data["address"] or "an unknown address"
    return f"An agent at {address} enrols as {row.data['name']}, {why}: it waits for admission."


def _entrance_changed(row: TimelineRow, reader: Reader) -> str:
    after = row.after or {}
    named = ", ".join(after.get("subscriptions", [])) or "none"
    return f"{row.actor} chose how machines enrol: {after.get('policy')}; subscriptions: {named}.{quoted(row.why)}"


def _decided(row: TimelineRow, reader: Reader) -> str:
    what = "admitted" if row.kind is EntryKind.MACHINE_ADMITTED else "refused"
    where = row.data["address"] or "an unknown address"
    if "until" in row.data:
        until = times.at(row.data["until"], reader)
        return f"{machine_named(row.data['name'])} came back from {where}: its set's rule admitted it, until {until}."
    return f"{row.actor} {what} who asked from {where} as {row.data['name']}.{quoted(row.why)}"


ENTRIES: dict[EntryKind, EntryText] = {
    EntryKind.MACHINE_ENROLLED: "{actor} enrolled.",
    EntryKind.MACHINE_ENROLLED_AGAIN: "{actor} enrolled again; its old credential ended.",
    EntryKind.MACHINE_CHANGED: _changed,
    EntryKind.MACHINE_IDENTIFIED: _identified,
    EntryKind.MACHINE_MOVED: _changed,
    EntryKind.NAME_HELD: "Machine {name} calls itself {called}, and another machine of its set is taken for that one:"
    " of those that are heard, the other one was called so first.",
    EntryKind.NAME_GIVEN: "Machine {name} is taken for {called} from now on: of those that are heard, it was called so"
    " first.",
    EntryKind.MACHINE_REVOKED: "{actor} revoked the credential of {name}.{why:quoted}",
    EntryKind.ENTRANCE_CHANGED: _entrance_changed,
    EntryKind.JOIN_TOKEN_ENDED: "The join token {prefix} was ended by {actor}.",
    EntryKind.MACHINE_WAITS: _waits,
    EntryKind.MACHINE_ADMITTED: _decided,
    EntryKind.ADMISSION_REFUSED: _decided,
    EntryKind.INVENTORY_IMPORTED: _imported,
}
