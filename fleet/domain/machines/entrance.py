"""Who may enrol: an installation's policy, and what it makes of who asks."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fleet.domain.machines.attestation import Attested
from fleet.domain.machines.names import machine_name
from fleet.domain.machines.pkcs7 import refusal
from fleet.domain.reason import Reason

MAX_NAME = 200


class EntrancePolicy(StrEnum):
    """How machines that nobody knows come in."""

    # By a join token, or by an attested document of an allowed subscription; else a person admits them.
    JOIN = "join"
    # By an attested document of an allowed subscription; where Azure gives none, a person admits them.
    AUTO = "auto"
    # By an attested document of an allowed subscription, and in no other way.
    ATTESTED = "attested"
    # A person admits each.
    ADMIT = "admit"
    # By a join token, as in 0.1.0; attested documents are not looked at.
    TOKEN = "token"  # noqa: S105 - the name of a policy


@dataclass(frozen=True, slots=True)
class Proof:
    """What whoever asks has proved before anything is written: that Azure vouches for it, and that it has a key, which
    `signed_by` names.
    """

    attested: Attested | None = None
    signed_by: str = ""


def checked(proof: Proof, *, vm_id: str, compute: Mapping[str, Any]) -> Proof:
    """The proof, if it is about this machine and agrees with what that says of itself. Raises Refused
    `attestation-refused`.
    """
    if proof.attested is not None:
        if proof.attested.vm_id != vm_id:
            raise refusal("attested-other-machine")
        stated = str(compute.get("subscriptionId") or "").strip().lower()
        if stated and stated != proof.attested.subscription:
            raise refusal("attested-other-subscription", subscription=proof.attested.subscription)
    return proof


# What an administrator may choose where no setting states it.
CHOICES = (EntrancePolicy.JOIN, EntrancePolicy.AUTO, EntrancePolicy.ATTESTED, EntrancePolicy.ADMIT)


def policy_of(*, stated: str, chosen: str, decided: str, subscriptions: bool) -> EntrancePolicy:
    """The policy in force: as a setting states it, else as an administrator chose, else as it was decided when the
    tables were made. Where nobody did, join tokens admit; where `subscriptions` are named, attested documents do.
    """
    if stated or chosen:
        return EntrancePolicy(stated or chosen)
    if decided == EntrancePolicy.TOKEN:
        return EntrancePolicy.TOKEN
    return EntrancePolicy.AUTO if subscriptions else EntrancePolicy.JOIN


def comes_in(policy: EntrancePolicy, proof: Proof, *, known: bool, allowed: bool, token: bool) -> bool:
    """Whether who has not proved to be a known machine comes in by the policy alone; else a person admits it.

    `allowed`: its subscription is. `token`: it shows a valid join token, which by `token` was checked before. Raises
    Refused `attestation-refused`.
    """
    if policy is EntrancePolicy.JOIN and token:
        return not known
    if policy is EntrancePolicy.TOKEN:
        return not known
    if policy is EntrancePolicy.ATTESTED:
        if proof.attested is None:
            raise refusal("attested-required")
        if not allowed:
            raise refusal("attested-subscription-strange", subscription=proof.attested.subscription)
    return not known and policy is not EntrancePolicy.ADMIT and proof.attested is not None and allowed


def remedy_of(code: str) -> Reason:
    """What to do where an enrolment was refused for a reason with this code."""
    if code in ("attested-required", "attested-subscription-strange"):
        return Reason("remedy-policy")
    if code.startswith("attested-"):
        return Reason("remedy-attested")
    if code in ("enrols-elsewhere", "names-no-set"):
        return Reason("remedy-set")
    if code.startswith("join-token-"):
        return Reason("remedy-join-token")
    if code == "admissions-full":
        return Reason("remedy-admissions")
    return Reason("remedy-other")


@dataclass(frozen=True, slots=True)
class Claimed:
    """What whoever waits says of itself; texts, empty where it says nothing. `home` is the set that it would be in, as
    `kind:name`.
    """

    name: str = ""
    subscription: str = ""
    region: str = ""
    addresses: tuple[str, ...] = ()
    resource_group: str = ""
    home: str = ""


def stated_name(resource_name: str, compute: Mapping[str, Any], otherwise: str) -> str:
    """How a machine is called that states this name and instance metadata when it enrols."""
    return machine_name((resource_name.strip() or str(compute.get("name") or "") or otherwise)[:MAX_NAME])


def claimed_of(name: str, compute: Mapping[str, Any], home: str = "") -> Claimed:
    listed = compute.get("privateIpAddresses")
    addresses = tuple(str(each)[:64] for each in listed[:8]) if isinstance(listed, list) else ()
    return Claimed(
        name=name,
        subscription=str(compute.get("subscriptionId") or "").lower()[:64],
        region=str(compute.get("location") or "")[:64],
        addresses=addresses,
        resource_group=str(compute.get("resourceGroupName") or "").lower()[:MAX_NAME],
        home=home,
    )


def contradictions(
    claimed: Claimed,
    known: Claimed | None,
    *,
    attested: str,
    allowed: bool,
    twins: int,
    namesake: bool,
) -> tuple[Reason, ...]:
    """What speaks against whoever waits.

    `known` is the machine that it says it is; `attested` the subscription that Azure has signed, `allowed` whether that
    one may enrol; `twins` are others who ask as the same machine, a `namesake` is another machine of its name.
    """
    found = []
    if twins:
        found.append(Reason("admission-twins", count=twins))
    if attested and not allowed:
        found.append(Reason("admission-subscription", subscription=attested))
    if known is None:
        if namesake:
            found.append(Reason("admission-namesake", name=claimed.name))
        return tuple(found)
    if claimed.name and known.name and claimed.name.lower() != known.name.lower():
        found.append(Reason("admission-other-name", name=known.name))
    stated = attested or claimed.subscription
    if stated and known.subscription and stated != known.subscription:
        found.append(Reason("admission-other-subscription", subscription=known.subscription))
    if claimed.region and known.region and claimed.region != known.region:
        found.append(Reason("admission-other-region", region=known.region))
    group = claimed.resource_group
    if group and known.resource_group and group != known.resource_group:
        found.append(Reason("admission-other-group", name=known.resource_group))
    if claimed.home and known.home and claimed.home.lower() != known.home.lower():
        found.append(Reason("admission-other-set", name=known.home))
    if claimed.addresses and known.addresses and not set(claimed.addresses) & set(known.addresses):
        found.append(Reason("admission-other-address", addresses=list(known.addresses)))
    return tuple(found)
