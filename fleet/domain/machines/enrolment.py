"""Enrolment policies, install commands, machine keys, and grouping of enrolments for display."""

import hmac
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from fleet.domain.machines.attestation import Attested
from fleet.domain.machines.inventory import machine_name
from fleet.domain.machines.pkcs7 import refusal
from fleet.domain.orders.series import Line, Series, groups_of
from fleet.domain.reasons import Reason
from fleet.domain.timeline import EntryKind

TOGETHER = timedelta(seconds=60)
LEAST = 3


def arrivals_of(lines: Sequence[Line]) -> dict[int, Series]:
    """Group timeline entries of machines that enrolled at nearly the same time, so that they are shown as one line.

    Return the group of each such entry, by the entry's id.
    """
    enrolments = [line for line in lines if line.kind is EntryKind.MACHINE_ENROLLED]
    return groups_of(enrolments, text_of=_arrivals, within=TOGETHER)


def _arrivals(group: Sequence[Line]) -> Reason | None:
    names = sorted({line.actor for line in group})
    return Reason("machines-came", names=names, count=len(names)) if len(group) >= LEAST else None


# Enrolment policies of an installation, and their decision about a machine.

MAX_NAME = 200


class EntrancePolicy(StrEnum):
    """How a new machine may enrol."""

    # By a join token, or by an attested document of an allowed subscription; else a person admits them.
    JOIN = "join"
    # By an attested document of an allowed subscription; where Azure gives none, a person admits them.
    AUTO = "auto"
    # By an attested document of an allowed subscription, and in no other way.
    ATTESTED = "attested"
    # A person admits each.
    ADMIT = "admit"
    # By a join token, as in 0.1.0; attested documents are ignored.
    TOKEN = "token"  # noqa: S105 - the name of a policy


@dataclass(frozen=True, slots=True)
class Proof:
    """Verified evidence about an enrolling machine: the attested document, and the name of the machine key that signed
    the request (`signed_by`).
    """

    attested: Attested | None = None
    signed_by: str = ""


def matched_proof(proof: Proof, *, vm_id: str, compute: Mapping[str, Any]) -> Proof:
    """Return the proof if it belongs to this machine and does not contradict the machine's instance metadata
    (`compute`).

    Raises Refused `attestation-refused` otherwise.
    """
    if proof.attested is not None:
        if proof.attested.vm_id != vm_id:
            raise refusal("attested-other-machine")
        stated = str(compute.get("subscriptionId") or "").strip().lower()
        if stated and stated != proof.attested.subscription:
            raise refusal("attested-other-subscription", subscription=proof.attested.subscription)
    return proof


# The administrator's choices where no setting states the policy.
CHOICES = (EntrancePolicy.JOIN, EntrancePolicy.AUTO, EntrancePolicy.ATTESTED, EntrancePolicy.ADMIT)


def is_admitted_by_policy(policy: EntrancePolicy, proof: Proof, *, known: bool, allowed: bool, token: bool) -> bool:
    """Return whether the policy admits a machine automatically; if not, an administrator must admit it.

    `known`: the machine claims to be an enrolled one and has not proved it. `allowed`: its subscription may enrol.
    `token`: it has a valid join token. Raises Refused `attestation-refused` if the policy requires an attested
    document.
    """
    if policy is EntrancePolicy.TOKEN or (policy is EntrancePolicy.JOIN and token):
        return not known
    if policy is EntrancePolicy.ATTESTED:
        if proof.attested is None:
            raise refusal("attested-required")
        if not allowed:
            raise refusal("attested-subscription-strange", subscription=proof.attested.subscription)
    return not known and policy is not EntrancePolicy.ADMIT and proof.attested is not None and allowed


def remedy_of(code: str) -> Reason:
    """Return what an administrator can do about a refused enrolment. `code` is the code of the reason."""
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
    """What a waiting machine states about itself. Texts are empty if not stated.

    `home` is the set to which it would belong, as `kind:name`.
    """

    name: str = ""
    subscription: str = ""
    region: str = ""
    addresses: tuple[str, ...] = ()
    resource_group: str = ""
    home: str = ""


def enrolled_name(resource_name: str, compute: Mapping[str, Any], otherwise: str) -> str:
    """Return the name of an enrolling machine: its resource name, else the name in the instance metadata, else
    `otherwise`.
    """
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


def claim_contradictions(request: Any, claimed: Claimed, known: Claimed | None, *, allowed: bool) -> tuple[Reason, ...]:
    """Return the reasons against admitting a waiting machine. `request` is the row of its request, with `duplicates`
    (the number of other requests for the same machine) and `namesake` (another machine has the same name).

    `known` is the enrolled machine that it claims to be (None: a new machine). `allowed`: the subscription that Azure
    has signed may enrol.
    """
    found = []
    if request.duplicates:
        found.append(Reason("admission-twins", count=request.duplicates))
    if request.attested and not allowed:
        found.append(Reason("admission-subscription", subscription=request.attested))
    if known is None:
        if request.namesake:
            found.append(Reason("admission-namesake", name=claimed.name))
        return tuple(found)
    for code, value, stated, before in (
        ("admission-other-name", "name", claimed.name, known.name),
        ("admission-other-subscription", "subscription", request.attested or claimed.subscription, known.subscription),
        ("admission-other-region", "region", claimed.region, known.region),
        ("admission-other-group", "name", claimed.resource_group, known.resource_group),
        ("admission-other-set", "name", claimed.home, known.home),
    ):
        if stated and before and stated.lower() != before.lower():
            found.append(Reason(code, **{value: before}))
    if claimed.addresses and known.addresses and not set(claimed.addresses) & set(known.addresses):
        found.append(Reason("admission-other-address", addresses=list(known.addresses)))
    return tuple(found)


# What installs the agent on a machine: one line for each platform, ready to be copied. Pure.

# Restrictions of the agent's unit by directive, each with the value that lifts it, for hooks that need more. Not
# ProcSubset=pid: the agent reads the boot id.
SANDBOX = {
    "CapabilityBoundingSet": ("", "~"),
    "LockPersonality": ("yes", "no"),
    "PrivateDevices": ("yes", "no"),
    "PrivateUsers": ("yes", "no"),
    "ProtectClock": ("yes", "no"),
    "ProtectControlGroups": ("yes", "no"),
    "ProtectHome": ("yes", "no"),
    "ProtectHostname": ("yes", "no"),
    "ProtectKernelLogs": ("yes", "no"),
    "ProtectKernelModules": ("yes", "no"),
    "ProtectKernelTunables": ("yes", "no"),
    "ProtectProc": ("invisible", "default"),
    "RestrictAddressFamilies": ("AF_INET AF_INET6 AF_UNIX", ""),
    "RestrictNamespaces": ("yes", "no"),
    "RestrictRealtime": ("yes", "no"),
    "SystemCallArchitectures": ("native", ""),
    "SystemCallErrorNumber": ("EPERM", ""),
    "SystemCallFilter": ("@system-service", ""),
}
_RESTRICTED = "\n".join(f"{name}={value}" for name, (value, _) in SANDBOX.items())
_LIFTED = "\n".join(f"{name}={lifted}" for name, (_, lifted) in SANDBOX.items())
# The unit of docs/admin/agent.md. systemd reads the settings as root, so that no other account needs access. It
# restarts an agent whose parts make no progress.
UNIT = f"""\
[Unit]
Description=Drydock agent
Wants=network-online.target
After=network-online.target

[Service]
Type=notify
EnvironmentFile=/etc/drydock-agent.env
ExecStart=/opt/drydock-agent/bin/drydock-agent run
DynamicUser=yes
StateDirectory=drydock-agent
Restart=always
RestartSec=5
WatchdogSec=180
{_RESTRICTED}

[Install]
WantedBy=multi-user.target
"""
# A drop-in for the unit: hooks run as root, without the restrictions.
HOOKS_DROP_IN = f"""\
[Service]
DynamicUser=no
{_LIFTED}
"""
SETTINGS_FILE = "/etc/drydock-agent.env"
CA_FILE = "/etc/drydock-agent-ca.pem"
UNIT_FILE = "/etc/systemd/system/drydock-agent.service"
WINDOWS_HOME = r"C:\Program Files\Drydock Agent"


@dataclass(frozen=True, slots=True)
class InstallLine:
    """The install command or file for one platform: `linux`, `windows`, `cloud-init`, `custom-script`, `azure-cli`,
    `other`. `token` is the join token that the command asks for, or empty.
    """

    platform: str
    text: str
    token: str = ""


def install_lines(
    *, fleet_url: str, join_token: str, package: str, current: str, installer: str, certificates: str = ""
) -> tuple[InstallLine, ...]:
    """Return the install commands for each platform. `package` is the agent's package as an argument of `pip install`.

    `current` is the address of a requirements file with the newest one: the model of a scale set outlasts upgrades of
    the backend. `installer` is the address of the script for Windows with its hash. `certificates` are those of private
    certificate authorities as PEM, for pip and the agent.
    """
    authorities = certificates.splitlines()
    steps = _linux_steps(fleet_url, join_token, f'"{_plain(package)}"', authorities)
    lasting = _linux_steps(fleet_url, join_token, f'-r "{_plain(current)}"', authorities)
    return (
        InstallLine("linux", f"sudo sh -c {shlex.quote(steps)}"),
        InstallLine("windows", _windows(installer, authorities), join_token),
        InstallLine("cloud-init", f"#!/bin/sh\n{lasting}"),
        InstallLine(
            "custom-script",
            "az vmss extension set --resource-group GROUP --vmss-name SET --publisher Microsoft.Azure.Extensions"
            " --name CustomScript --version 2.1 --protected-settings"
            f" {shlex.quote(json.dumps({'commandToExecute': lasting}))}",
        ),
        InstallLine(
            "azure-cli",
            "az vm run-command invoke --resource-group GROUP --name VM --command-id RunShellScript"
            f" --scripts {shlex.quote(steps)}",
        ),
        InstallLine("other", "\n".join(_settings(fleet_url, join_token, bool(certificates)))),
    )


def _settings(fleet_url: str, join_token: str, has_ca_file: bool) -> list[str]:
    ca_file = [f"DRYDOCK_CA_FILE={CA_FILE}"] if has_ca_file else []
    return [f"DRYDOCK_FLEET_URL={fleet_url}", f"DRYDOCK_JOIN_TOKEN={join_token}", *ca_file]


def _linux_steps(fleet_url: str, join_token: str, packages: str, certificates: list[str]) -> str:
    """Return the install commands for root in a POSIX shell. Running them again upgrades the agent, writes the settings
    again, and restarts the agent. `packages` are quoted arguments of `pip install`.
    """
    home, bundle = "/opt/drydock-agent", "/opt/drydock-agent/pip-ca.pem"
    # The package index may have a public certificate: pip trusts its own authorities, too.
    trusted = [
        f"(umask 022 && {_written(certificates, CA_FILE)})",
        f"({home}/bin/python -m pip._vendor.certifi --contents && cat {CA_FILE}) > {bundle}",
        # Also for upgrades of the agent.
        _written(["[global]", f"cert = {bundle}"], f"{home}/pip.conf"),
    ]
    return " && ".join(
        [
            f"python3 -m venv {home}",
            *(trusted if certificates else []),
            f"{home}/bin/pip install --quiet {packages}",
            f"(umask 077 && {_written(_settings(fleet_url, join_token, bool(certificates)), SETTINGS_FILE)})",
            _written(UNIT.splitlines(), UNIT_FILE),
            "systemctl daemon-reload",
            "systemctl enable drydock-agent",
            "systemctl restart drydock-agent",
        ]
    )


def _written(lines: list[str], path: str) -> str:
    """Return a shell command that writes these lines to the file `path`.

    The lines are escaped for printf and then for double quotes, so that the command can be inside single quotes.
    """
    formats = [line.replace("\\", "\\\\").replace("%", "%%") for line in lines]
    shown = "".join(_plain(line) + r"\n" for line in formats)
    # The first line of a certificate begins with dashes.
    return f'printf -- "{shown}" > {path}'


def _plain(text: str) -> str:
    """Return the text escaped for double quotes."""
    return re.sub(r'([\\"$`])', r"\\\1", text)


def _windows(installer: str, certificates: list[str]) -> str:
    """Return the install commands for an administrator's PowerShell. They download the script of the backend, check its
    hash and run it. The script asks for the join token, which would otherwise remain in the history of commands.
    """
    address, _, digest = installer.partition("#sha256=")
    script, ca_file = rf"{WINDOWS_HOME}\Install-DrydockAgent.ps1", rf"{WINDOWS_HOME}\ca.pem"
    download = [
        "[Net.ServicePointManager]::SecurityProtocol = 'Tls12'",
        f"Invoke-WebRequest -UseBasicParsing -Uri {_ps(address)} -OutFile '{script}'",
    ]
    if certificates:
        # Invoke-WebRequest trusts only authorities of the whole machine.
        program = "import ssl, sys, urllib.request as r; c = ssl.create_default_context(cafile=sys.argv[2]);"
        program += " open(sys.argv[3], 'wb').write(r.urlopen(sys.argv[1], context=c).read())"
        download = [
            f"Set-Content -Encoding ascii '{ca_file}' {', '.join(map(_ps, certificates))}",
            f"py -3 -c {_ps(program)} {_ps(address)} '{ca_file}' '{script}'",
        ]
    return "; ".join(
        [
            "$ErrorActionPreference = 'Stop'",
            # Only administrators can change a file there.
            f"New-Item -ItemType Directory -Force '{WINDOWS_HOME}' | Out-Null",
            *download,
            f"if ((Get-FileHash '{script}').Hash -ne '{digest}') {{ throw 'The checksum of the script is wrong.' }}",
            f"powershell.exe -NoProfile -ExecutionPolicy Bypass -File '{script}'"
            + (f" -CaFile '{ca_file}'" if certificates else ""),
        ]
    )


def _ps(text: str) -> str:
    """Return the text as a PowerShell string literal."""
    return "'" + text.replace("'", "''") + "'"


# A machine's own key: made of the installation's master key, so that it is kept on the machine and nowhere else.


def machine_key(master: bytes, vm_id: str, generation: int) -> bytes:
    """Return the 32-byte key of a machine. `master` is the installation's master key, `generation` the number of the
    enrolment.
    """
    return hmac.digest(master, f"drydock machine key 1\n{vm_id}\n{generation}".encode(), "sha256")


def key_name(master: bytes, vm_id: str, generation: int) -> str:
    """Return the name of a machine key, by which the database finds the machine. It does not reveal the key."""
    return hmac.digest(master, f"drydock machine name 1\n{vm_id}\n{generation}".encode(), "sha256").hex()


def call_signature(key: bytes, text: bytes) -> str:
    """Return the signature of a request: the HMAC-SHA256 of `text` in hex."""
    return hmac.digest(key, text, "sha256").hex()
