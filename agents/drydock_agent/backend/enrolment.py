"""Enrolment of this machine at the backend: requests a key or credential, if possible with Azure's attested
document.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from drydock_agent import wire
from drydock_agent.backend import issuers
from drydock_agent.backend.client import BackendClient, RefusedByBackend, proxies_for
from drydock_agent.backend.machine_key import Key, Secret
from drydock_agent.backend.signatures import NEVER, Keyring
from drydock_agent.clock import Clock
from drydock_agent.connections import NoAnswer
from drydock_agent.log_limiter import LogLimiter
from drydock_agent.machine import Identity, resource_name
from drydock_agent.metadata_service.client import Imds, MetadataUnavailable
from drydock_agent.settings.load import Settings
from drydock_agent.state_folder import Credential, StateFolder
from drydock_agent.version import agent_version

T = TypeVar("T")

log = logging.getLogger("drydock_agent")


class Enrolment:
    """The machine's key or credential, shared by threads. The uploader enrols; the listener only uses the secret."""

    def __init__(
        self,
        settings: Settings,
        identity: Identity,
        state: StateFolder,
        *,
        keyring: Keyring,
        enrolled: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._state = state
        self._keyring = keyring
        self._enrolled = enrolled
        self._lock = threading.Lock()
        stored = state.credential()
        # A cloned disk holds the credential of another machine.
        ours = stored is not None and stored.machine_id == identity.machine_id
        self._secret = secret_from(stored) if stored is not None and ours else None
        # Proves the identity when enrolling again, even after it was refused.
        self._last_secret: Secret = self._secret or ""
        # Key of the id used before Azure gave a vmId; it proves that both ids are one machine.
        self._former_credential = stored if stored is not None and stored.machine_id == identity.former_id else None

    @property
    def secret(self) -> Secret | None:
        """The key or credential to use, or None if the backend accepts neither at present."""
        with self._lock:
            return self._secret

    def discard_rejected(self, secret: Secret) -> None:
        """Stop using `secret` after the backend rejected it with 401. It stays on disk until a new one replaces it."""
        with self._lock:
            if self._secret == secret:
                self._secret = None

    def enrol(self, client: BackendClient) -> None:
        """Request a key or credential from the backend and store it. Raises `StateError` and the errors of `client`."""
        last = self._last_secret
        try:
            granted = self._request_with_certificates(client, client.enrol)
        except RefusedByBackend as error:
            self._restore_after_refusal(last, error)
            raise
        # Used even if it cannot be stored: reports are delivered, and enrolling again is cheap.
        with self._lock:
            self._secret = self._last_secret = granted.secret
        self._former_credential = None
        self._enrolled()
        self._keyring.enrolled(granted.signing_keys)
        self._state.keep_credential(_to_credential(granted.secret, self._identity))

    def check(self, client: BackendClient) -> None:
        """Check whether `enrol` would succeed now. The backend stores nothing. Raises what `enrol` would raise, and
        `RefusedByBackend` with status 404 if the backend does not support this check.
        """
        self._request_with_certificates(client, client.check_enrolment, keep=False)

    def _request_with_certificates(
        self, client: BackendClient, call: Callable[[wire.EnrolRequest, Key | None], T], *, keep: bool = True
    ) -> T:
        """Send an enrolment request and return the response. If the backend needs intermediate certificates, fetch them
        and repeat the request.
        """
        attested = self._attested(client)
        proof = secret_from(self._former_credential) if self._former_credential is not None else self._last_secret
        for _ in range(wire.MAX_INTERMEDIATES):
            try:
                request = self._request(attested, proof, keep=keep)
                answer = call(request, proof if isinstance(proof, Key) else None)
                break
            except RefusedByBackend as error:
                if attested is None or not error.wanted:
                    raise
                attested.intermediates.append(issuers.fetch(error.wanted, proxies_for(error.wanted)))
        else:
            raise NoAnswer("it requests too many certificates")
        return answer

    def _restore_after_refusal(self, last: Secret, error: RefusedByBackend) -> None:
        # Without a join token, use the refused secret again: the backend may be restored and accept it later.
        if error.status == 403 and last and not self._settings.join_token:
            with self._lock:
                self._secret = last

    def _attested(self, client: BackendClient) -> wire.AttestedDocument | None:
        """Return Azure's attested document of this machine, or None outside Azure or if the backend does not support
        it.
        """
        if self._identity.source != "imds":
            return None
        nonce = client.nonce()
        if not nonce:
            return None
        try:
            with contextlib.closing(Imds(self._settings.imds_url)) as imds:
                return wire.AttestedDocument(signature=imds.attested(nonce))
        except MetadataUnavailable as error:
            log.info("Azure gave no attested document: %s.", error)
            return None

    def _request(self, attested: wire.AttestedDocument | None, proof: Secret, *, keep: bool) -> wire.EnrolRequest:
        return wire.EnrolRequest(
            join_token=self._settings.join_token,
            machine_id=self._identity.machine_id,
            machine_id_source=self._identity.source,
            resource_name=resource_name(self._settings, self._identity.compute),
            availability_set=self._settings.availability_set,
            instance=self._identity.compute,
            agent_version=agent_version(),
            credential=proof if isinstance(proof, str) else "",
            ask=self._state.admission_secret(keep=keep),
            attested=attested,
            keyed=True,
            complete=self._identity.complete,
            former_id=self._former_credential.machine_id if self._former_credential is not None else "",
        )


def check_admission(settings: Settings, identity: Identity, state: StateFolder, client: BackendClient) -> None:
    """Check whether this machine could enrol now, for the command `check`. Raises what `Enrolment.check` raises."""
    keyring = Keyring(state=state, mode=NEVER, limiter=LogLimiter(Clock()))
    Enrolment(settings, identity, state, keyring=keyring, enrolled=lambda: None).check(client)


def secret_from(stored: Credential) -> Secret:
    """Return the key or credential in the state folder in the form that `BackendClient` uses."""
    if stored.key and stored.generation.isdecimal():
        return Key(stored.machine_id, int(stored.generation), stored.key)
    return stored.secret


def _to_credential(secret: Secret, identity: Identity) -> Credential:
    if isinstance(secret, str):
        return Credential(identity.machine_id, identity.source, secret)
    return Credential(identity.machine_id, identity.source, key=secret.key, generation=str(secret.generation))
