"""Texts about machines: enrolment, inventories, and timeline entries."""

from fleet.domain.orders.series import SignatureCheck
from fleet.domain.timeline import EntryKind
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording import times
from fleet.wording.sentences import EntryText, Sentence, fill, machine_named, quoted, some
from fleet.wording.times import Reader

SENTENCES: dict[str, Sentence] = {
    "machines-came": "{count} machines enrolled: {names:some}.",
    "move-into-provisional": "The set has no name yet: name it first.",
    "name-held": "This machine reports the name {called}, which another live machine of the set already has.",
    "machine-unknown": "There is no machine with this id.",
    "decommission-live": "The machine reports. Revoke it first, or wait until it is silent.",
    "decommission-in-use": "The event {event} is open. Wait for its end, or discount the reports of the machine if only"
    " this machine lists it.",
    "machine-live": "The machine reports. Only reports of a silent or revoked machine can be discounted.",
    "admissions-full": "Too many machines wait for admission already.",
    "admission-twice": "Several of these requests are for {name}: admit only one.",
    "admission-unknown": "No agent waits for admission under one of these ids: reload the list.",
    "machine-id-unusable": "machine_id is empty or longer than {most} characters.",
    "enrolled-again": "Enrolled again at {at:time}: the previous credential was revoked.",
    "attested-too-large": "The attested document is too large: at most {most:,} bytes are accepted.",
    "attested-not-base64": "The attested document is not base64.",
    "attested-not-der": "The attested document is not PKCS #7 as Azure writes it, in DER.",
    "attested-detached": "The attested document has no content.",
    "attested-signers": "The attested document has {count} signers, and Azure's have one.",
    "attested-signer-certificate": "The attested document contains {count} certificates with the name of its signer"
    " instead of one.",
    "attested-certificate-unreadable": "A certificate of the attested document cannot be read.",
    "attested-algorithm": "The attested document is signed by another algorithm than SHA-256 with RSA.",
    "attested-attributes": "The attested document has attributes next to its signature; Azure's documents have none.",
    "attested-key": "The key that signed the attested document is not RSA of at least {least:,} bits.",
    "attested-signature": "The signature of the attested document does not match its content.",
    "attested-subject": "The certificate that signed the attested document does not belong to Azure's metadata"
    " service.",
    "attested-use": "The certificate that signed the attested document is not for servers that sign.",
    "attested-certificate-over": "The certificate that signed the attested document is not valid now; it ends"
    " {at:time}.",
    "attested-no-roots": "No roots of attested documents are configured: see the setting ATTESTED_ROOTS.",
    "attested-chain": "The certificates of the attested document lead to no trusted root; the last one is issued by"
    " {issuer}. If this issuer is Azure's, add its root to the folder ATTESTED_ROOTS.",
    "attested-intermediate": "Intermediate certificate missing: {url}",
    "attested-many-intermediates": "More than {most} intermediates came with the attested document.",
    "attested-nonce": "Drydock did not issue the nonce of the attested document.",
    "attested-nonce-over": "The nonce of the attested document is older than {seconds} seconds: request a new one.",
    "attested-nonce-spent": "The nonce of the attested document was used before: request a new one.",
    "attested-times": "The times of the attested document are not in the format of Azure.",
    "attested-expired": "The attested document is not valid now: it ends {at:time}.",
    "attested-vm-id": "The attested document states no vmId.",
    "attested-subscription": "The attested document states no subscription.",
    "attested-subscription-strange": "The subscription {subscription} is not permitted to enrol: see the setting"
    " ATTESTED_SUBSCRIPTIONS.",
    "attested-other-machine": "The attested document belongs to another machine.",
    "attested-unreadable": "The attested document cannot be read.",
    "attested-other-subscription": "According to Azure this machine is in the subscription {subscription}, but the"
    " machine reports another.",
    "bearer-over": "Drydock no longer accepts credentials without a signature: install an agent of this release, then"
    " admit the machine.",
    "remedy-policy": "Add the subscription of the machine, or choose another enrolment policy, on the page First"
    " steps. If settings state them, change ENROLMENT_POLICY or ATTESTED_SUBSCRIPTIONS.",
    "remedy-attested": "See “Who may enrol” in the agent's documentation: certificates and clocks are the usual causes."
    " A machine without a usable document can enrol with a join token if the policy permits it.",
    "remedy-set": "Configure the set of the join token on the machine, or create a join token for the reported set.",
    "remedy-join-token": "Create a join token and set it as DRYDOCK_JOIN_TOKEN on the machine.",
    "remedy-admissions": "Admit or refuse the machines that wait for admission.",
    "remedy-other": "Correct the stated reason on the machine. The agent retries automatically.",
    "enrolment-refused": "The enrolment was refused.",
    "entrance-stated": "The setting ENROLMENT_POLICY is {policy}: change the setting.",
    "entrance-unknown": "Choose how machines enrol.",
    "entrance-subscription": "Enter at most {most} subscription ids, such as 00000000-0000-0000-0000-000000000000.",
    "entrance-no-subscription": "Enter the id of the subscription whose machines may enrol with an attested document.",
    "admission-twins": "{count} more requests for the same machine.",
    "admission-subscription": "According to Azure the machine is in the subscription {subscription}, which is not"
    " permitted to enrol.",
    "admission-namesake": "Another machine already has the name {name}.",
    "admission-other-name": "The known machine has the name {name}.",
    "admission-other-subscription": "The known machine is in the subscription {subscription}.",
    "admission-other-region": "The known machine is in {region}.",
    "admission-other-group": "The known machine is in the resource group {name}.",
    "admission-other-set": "The known machine is in the set {name}.",
    "admission-other-address": "The known machine has other addresses: {addresses:list}.",
    "attested-required": "Machines need an attested document of Azure to enrol, and the request contains none.",
    "join-token-unknown": "Drydock does not know this join token. Create a new one and configure it.",
    "join-token-over": "This join token has expired or was revoked. Create a new one.",
    "join-token-used-up": "This join token was used by {count:,} machines, the maximum. Create a new one.",
    "join-token-two-sets": "Enter a new set or choose an existing set, not both.",
    "join-token-which-set": "There are several sets of this kind called “{name}”, in {places:list}. Choose the set by"
    " its id.",
    "join-token-none": "There is no join token with this prefix.",
    "inventory-no-json": "This is not JSON: use the output of `az … --output json`.",
    "inventory-no-object": "Item {number} is not an object: this is not the output of `az` with `--output json`.",
    "inventory-strange": "Item {number} is of {type:?type {type}|an unknown type}. Use the output of `az vm list`, `az"
    " vm availability-set list`, `az vmss list-instances` or `az vmss list`.",
}

SIGNATURES: dict[str, str] = {
    SignatureCheck.CHECKED: "checked",
    SignatureCheck.NONE: "not checked",
    SignatureCheck.NO_KEY: "no trusted key",
    SignatureCheck.STRANGE_KEYS: "other keys than Drydock's",
}

# For each way to install the agent: its platform, and the requirements shown with it.
PLATFORMS: dict[str, tuple[str, str]] = {
    "linux": (
        "Linux with systemd",
        "Run in a shell on the machine. Requires Python 3.10 or newer with the venv module.",
    ),
    "windows": (
        "Windows",
        "Run in PowerShell as administrator. Requires Python 3.10 or newer for all users, with the launcher py.",
    ),
    "cloud-init": ("New Linux VMs, with cloud-init", "Use this as the custom data of a VM or of a scale set."),
    "custom-script": (
        "Linux scale sets, with the custom script extension",
        "Run this where you are signed in to Azure. Replace the names. Protected settings keep the token secret.",
    ),
    "azure-cli": (
        "Existing Linux VMs, remotely with the Azure CLI",
        "Run this where you are signed in to Azure. Replace the names.",
    ),
    "other": ("Other systems", "Settings of the agent as environment variables, for example in an .env file."),
}

# Effect of an inventory on a machine, if it differs from the code.
CHANGES = {"dropped": "removed", "same": "unchanged"}
# Names of a machine's fields, if they are not the field's own.
LABELS = {"resource_name": "name", "availability_set_id": "set", "os_type": "system"}

# Values by which machines are counted.
VALUE_LABELS = {
    "size": "Size",
    "region": "Region",
    "zone": "Zone",
    "agent_version": "Agent",
    "events_version": "api-version, events",
    "instance_version": "api-version, instance",
}


# Moves to another set, by their cause.
MOVES = {
    "inventory": "machine {name} is in “{set}” according to the imported inventory.",
    "event": "machine {name} moved to “{set}”, together with its event.",
    "person": "{actor} moved machine {name} into “{set}” and confined it there.{why:quoted}",
    "lifted": "{actor} lifted the confinement of machine {name}, which is now in “{set}” as stated.{why:quoted}",
}


def _changed(row: TimelineRow, reader: Reader) -> str:
    """Return the timeline sentence of a change to a machine: one that it reported itself, or a move to another set."""
    if template := MOVES.get(row.data.get("because", "")):
        return fill(template, {**row.data, "actor": row.actor, "why": row.why}, reader)
    changes = ", ".join(LABELS.get(field, field.replace("_", " ")) for field in row.data["changes"])
    return f"{machine_named(row.data['name'])} reports a changed {changes}."


def _imported(row: TimelineRow, reader: Reader) -> str:
    found = row.after or {}
    dropped = f", {found['dropped']} removed" if row.data["complete"] else ""
    # Since 0.2.0.
    refused = [
        f" Ignored: {one['machine']} in {one['stated']}, because it is confined to {one['confined_to']}."
        for one in found.get("refused", [])
    ]
    return (
        f"{row.actor} imported an inventory: {found['machines']} machines, {found['new']} of them new,"
        f" {found['without_agent']} without an agent{dropped}.{''.join(refused)}"
    )


def _deleted(row: TimelineRow) -> str:
    deleted = [*row.data["sets"], *row.data["caches"]]
    return f" Deleted, because only this machine had named them and they are empty: {some(deleted)}." if deleted else ""


def _discounted(row: TimelineRow, reader: Reader) -> str:
    return (
        f"{row.actor} discounted the reports of {machine_named(row.data['name'])}. Open events that it listed:"
        f" {row.data['events']}.{_deleted(row)}{quoted(row.why)}"
    )


RULES = {
    "gone": "it was silent for the days of DECOMMISSION_GONE_DAYS",
    "terminated": "its last report listed its own Terminate (DECOMMISSION_TERMINATED_DAYS)",
    "unlisted": "a complete inventory no longer listed it (DECOMMISSION_UNLISTED_DAYS)",
}


def _decommissioned(row: TimelineRow, reader: Reader) -> str:
    because = f": {RULES.get(row.data['rule'], row.data['rule'])}" if row.data["rule"] else ""
    return f"{row.actor} decommissioned {machine_named(row.data['name'])}{because}.{_deleted(row)}{quoted(row.why)}"


def _enrolled_again(row: TimelineRow, reader: Reader) -> str:
    since = row.data.get("decommissioned_at")
    returned = f" It had been decommissioned {times.at(since, reader)}." if since else ""
    return f"{row.actor} enrolled again. The old credential was revoked.{returned}"


def _decided(row: TimelineRow, reader: Reader) -> str:
    what = "admitted" if row.kind is EntryKind.MACHINE_ADMITTED else "refused"
    where = row.data["address"] or "an unknown address"
    if "until" in row.data:
        until = times.at(row.data["until"], reader)
        again = f"{machine_named(row.data['name'])} enrolled again from {where}."
        return f"{again} The set admits machines automatically until {until}."
    return f"{row.actor} {what} the request from {where} to enrol as {row.data['name']}.{quoted(row.why)}"


ENTRIES: dict[EntryKind, EntryText] = {
    EntryKind.MACHINE_ENROLLED: "{actor} enrolled.",
    EntryKind.MACHINE_ENROLLED_AGAIN: _enrolled_again,
    EntryKind.MACHINE_CHANGED: _changed,
    EntryKind.MACHINE_IDENTIFIED: "Machine {name} had the id {before[vm_id]} before Azure assigned the vmId"
    " {after[vm_id]}: both are one machine.",
    EntryKind.MACHINE_MOVED: _changed,
    EntryKind.NAME_HELD: "Machine {name} reports the name {called}, which another live machine of the set already has.",
    EntryKind.NAME_GIVEN: "Machine {name} now has the name {called}.",
    EntryKind.MACHINE_REVOKED: "{actor} revoked the credential of {name}.{why:quoted}",
    EntryKind.MACHINE_DISCOUNTED: _discounted,
    EntryKind.MACHINE_DECOMMISSIONED: _decommissioned,
    EntryKind.ENTRANCE_CHANGED: "{actor} set the enrolment policy: {after[policy]}; subscriptions:"
    " {after[subscriptions]:?{after[subscriptions]:commas}|none}.{why:quoted}",
    EntryKind.JOIN_TOKEN_ENDED: "{actor} revoked the join token {prefix}.",
    EntryKind.MACHINE_WAITS: "An agent at {address:or an unknown address} enrols as {name}, {revoked:?which was revoked"
    "|without the credential of this machine}. The request waits for admission.",
    EntryKind.MACHINE_ADMITTED: _decided,
    EntryKind.ADMISSION_REFUSED: _decided,
    EntryKind.INVENTORY_IMPORTED: _imported,
}
