"""The command `check`: tests the connections of this machine and reports one sentence about each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from drydock_agent import machine
from drydock_agent.backend.client import AdmissionPending, BackendClient, RefusedByBackend, tls_context
from drydock_agent.backend.enrolment import check_admission, secret_from
from drydock_agent.clock import Clock, ServerClock
from drydock_agent.connections import NoAnswer
from drydock_agent.lazy_import import LazyImport
from drydock_agent.metadata_service import endpoint
from drydock_agent.metadata_service.client import Imds, MetadataUnavailable
from drydock_agent.metadata_service.document import read
from drydock_agent.platforms import system
from drydock_agent.settings.load import Settings
from drydock_agent.state_folder import StateError, StateFolder

if TYPE_CHECKING:
    from drydock_agent.redis import parts as caches
else:
    caches = LazyImport("drydock_agent.redis.parts")

REMEDY = (
    "Azure's Metadata Security Protocol or a firewall on this machine may refuse this process: allow it in the VM's"
    " access control profile, or remove the rule."
)
PROXY = "See to it that no proxy or other program answers at that address."

# Beyond this many seconds the backend corrects a machine's times.
OFFSET_SECONDS = 2.0


@dataclass(slots=True, frozen=True)
class Finding:
    """Result of one check, with a sentence for the user."""

    good: bool
    sentence: str


def check(settings: Settings, *, clock: Clock) -> list[Finding]:
    """Run all checks once and return their results. Nothing is changed on this machine or in the backend, and no orders
    are requested.
    """
    state = StateFolder(settings.state_dir, clock)
    first = _state(state)
    looked = []
    if endpoint.needs_discovery(settings):
        kept = state.endpoint()
        where = f"DHCP named {kept} earlier" if kept else f"`run` will ask DHCP, which needs {system.DISCOVERY_NEEDS}"
        looked = [Finding(bool(kept), f"The metadata service is not at the configured address: {where}.")]
        settings = replace(settings, imds_url=f"http://{kept}" if kept else settings.imds_url)
    return [
        first,
        *looked,
        *_metadata(Imds(settings.imds_url), settings),
        *_backend(settings, state, clock),
        *(Finding(*caches.check(cache, settings)) for cache in settings.redis_caches),
    ]


def _state(state: StateFolder) -> Finding:
    try:
        state.prepare()
    except StateError as error:
        return Finding(False, str(error))
    return Finding(True, f"The state folder {state.root} can be written.")


def _metadata(imds: Imds, settings: Settings) -> list[Finding]:
    findings = []
    try:
        compute = imds.instance()
        found = machine.vm_id(compute)
        name = machine.resource_name(settings, compute) or "no name"
        text = f"This is machine {found} ({name})." if found else "The instance metadata has no vmId."
        text += f" The instance metadata has api-version {imds.instance_version}."
        findings.append(Finding(bool(found or settings.machine_id), text))
    except MetadataUnavailable as error:
        findings.append(Finding(False, f"The instance metadata cannot be read: {error}."))
    try:
        document = read(imds.scheduled_events(first_call=True))
    except MetadataUnavailable as error:
        text = f"Scheduled events cannot be read at {settings.imds_url}: {error}."
        findings.append(Finding(False, f"{text} {REMEDY}" if error.is_lasting else text))
    else:
        count = len(document.listed)
        events = f"{count} scheduled event{'' if count == 1 else 's'}"
        text = f"The metadata service lists {events}, with api-version {imds.events_version}."
        good = document.readable
        findings.append(
            Finding(good, text if good else f"The metadata service answers, but not with a document. {PROXY}")
        )
    imds.close()
    return findings


def _backend(settings: Settings, state: StateFolder, clock: Clock) -> list[Finding]:
    server_clock = ServerClock(clock)
    client = BackendClient(
        settings.fleet_url, tls=tls_context(settings.ca_file), clock=clock, server_clock=server_clock
    )
    credential = state.credential()
    reached = Finding(True, f"The backend {settings.fleet_url} can be reached.")
    try:
        client.orders(secret_from(credential) if credential else "", wait=0, held=[])
    except NoAnswer as error:
        return [Finding(False, f"The backend {settings.fleet_url} cannot be reached: {error}.")]
    except RefusedByBackend as error:
        if error.status != 401:
            return [Finding(False, f"The backend {settings.fleet_url} can be reached, but {error}.")]
        word = "refuses this machine's credential" if credential else "does not know this machine yet"
        return [reached, _enrolment(settings, state, client, word)]
    finally:
        client.close()
    offset = server_clock.offset() or 0.0
    direction = "behind" if offset > 0 else "ahead of"
    return [
        Finding(True, f"The backend {settings.fleet_url} can be reached and takes this machine's credential."),
        Finding(
            abs(offset) <= OFFSET_SECONDS, f"This machine's clock is {abs(offset):.1f} s {direction} the backend's."
        ),
    ]


def _enrolment(settings: Settings, state: StateFolder, client: BackendClient, word: str) -> Finding:
    """Check whether the backend would admit this machine now. Neither side stores anything."""
    identity = _identity(settings, state)
    if identity is None:
        return Finding(
            False, f"The backend {word}; whether it would admit this machine cannot be asked without its id."
        )
    try:
        check_admission(settings, identity, state, client)
    except AdmissionPending:
        text = "it would wait until an administrator admits it on the page “Machines to admit”"
        return Finding(False, f"The backend {word}, and this machine would not be admitted now: {text}.")
    except RefusedByBackend as error:
        if error.status in (404, 405):
            how = "with the join token" if settings.join_token else "by what Azure says of it, or once it is admitted"
            return Finding(
                True, f"The backend {word}; `run` will try to enrol {how}. It cannot say whether it admits it."
            )
        return Finding(False, f"The backend {word}, and this machine would not be admitted now: {error}.")
    except NoAnswer as error:
        return Finding(False, f"The backend {word}; whether it would admit this machine was not answered: {error}.")
    return Finding(True, f"The backend {word}; `run` will enrol, and it would be admitted now.")


def _identity(settings: Settings, state: StateFolder) -> machine.Identity | None:
    """Return the machine's identity after one query of the metadata service, or None. No id is generated."""
    imds = Imds(settings.imds_url)
    try:
        compute = imds.instance()
        if found := machine.vm_id(compute):
            former = machine.former_id(state, found)
            return machine.Identity(found, "imds", compute, imds.instance_complete, former)
    except MetadataUnavailable:
        compute = None
    finally:
        imds.close()
    known = machine.stored_identity(settings, state)
    return replace(known, compute=compute) if known is not None else None
