"""By what this machine proves who it is: kept, refused, and asked for anew, with what Azure says of it."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from drydock_agent import wire
from drydock_agent.backend import issuers
from drydock_agent.backend.client import BackendClient, RefusedByBackend, proxies_for
from drydock_agent.backend.own_key import Key, Secret
from drydock_agent.backend.signatures import NEVER, Keyring
from drydock_agent.clock import Clock
from drydock_agent.connections import NoAnswer
from drydock_agent.log_limiter import LogLimiter
from drydock_agent.machine import Identity, resource_name
from drydock_agent.metadata_service.client import Imds, NotNow
from drydock_agent.settings.load import Settings
from drydock_agent.state_folder import Credential, StateFolder
from drydock_agent.version import agent_version

T = TypeVar("T")

log = logging.getLogger("drydock_agent")


class Enrolment:
    """Shared by the uploader, which enrols, and the listener, which only uses the credential."""

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
        # A disk that was cloned brings another machine's credential along.
        ours = stored is not None and stored.machine_id == identity.machine_id
        self._secret = secret_of(stored) if stored is not None and ours else None
        # Proves who this is when it enrols again, even after it was refused.
        self._last: Secret = self._secret or ""
        # It enrolled as another machine while Azure gave it no vmId: that one's key proves that the two are one.
        self._former = stored if stored is not None and stored.machine_id == identity.former_id else None

    @property
    def secret(self) -> Secret | None:
        """The key or the credential, or None while there is none that the backend takes."""
        with self._lock:
            return self._secret

    def refused(self, secret: Secret) -> None:
        """The backend answered 401 to `secret`. It stays on disk until there is another one."""
        with self._lock:
            if self._secret == secret:
                self._secret = None

    def enrol(self, client: BackendClient) -> None:
        """Ask for a key and store it. Raises what `client` raises, and `StateError`."""
        last = self._last
        try:
            granted = self._asked(client, client.enrol)
        except RefusedByBackend as error:
            self._go_on_with(last, error)
            raise
        # Used even where it cannot be stored: the spool is full of news, and enrolling again costs only a warning.
        with self._lock:
            self._secret = self._last = granted.secret
        self._former = None
        self._enrolled()
        self._keyring.enrolled(granted.signing_keys)
        self._state.keep_credential(_stored(granted.secret, self._identity))

    def check(self, client: BackendClient) -> None:
        """Ask whether `enrol` would be granted now; the backend keeps nothing of it. Raises what `enrol` raises,
        `RefusedByBackend` with 404 where the backend does not know the question.
        """
        self._asked(client, client.check_enrolment, keep=False)

    def _asked(
        self, client: BackendClient, call: Callable[[wire.EnrolRequest, Key | None], T], *, keep: bool = True
    ) -> T:
        """What the backend answers to this machine's request, with the certificates that it wants."""
        attested = self._attested(client)
        proof = secret_of(self._former) if self._former is not None else self._last
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
            raise NoAnswer("it wants ever more certificates")
        return answer

    def _go_on_with(self, last: Secret, error: RefusedByBackend) -> None:
        # Without a join token nothing will change here: what was refused may count again, as after a restored backup.
        if error.status == 403 and last and not self._settings.join_token:
            with self._lock:
                self._secret = last

    def _attested(self, client: BackendClient) -> wire.AttestedDocument | None:
        """What Azure signs of this machine; None where there is no Azure, or nobody to look at it."""
        if self._identity.source != "imds":
            return None
        nonce = client.nonce()
        if not nonce:
            return None
        try:
            with contextlib.closing(Imds(self._settings.imds_url)) as imds:
                return wire.AttestedDocument(signature=imds.attested(nonce))
        except NotNow as error:
            log.info("Azure does not say who this machine is: %s.", error)
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
            ask=self._state.ask(keep=keep),
            attested=attested,
            keyed=True,
            complete=self._identity.complete,
            former_id=self._former.machine_id if self._former is not None else "",
        )


def would_enrol(settings: Settings, identity: Identity, state: StateFolder, client: BackendClient) -> None:
    """Ask whether `Enrolment.enrol` would be granted now. Raises what `Enrolment.check` raises."""
    keyring = Keyring(state=state, mode=NEVER, limiter=LogLimiter(Clock()))
    Enrolment(settings, identity, state, keyring=keyring, enrolled=lambda: None).check(client)


def secret_of(stored: Credential) -> Secret:
    """By what the stored one proves who this machine is."""
    if stored.key and stored.generation.isdecimal():
        return Key(stored.machine_id, int(stored.generation), stored.key)
    return stored.secret


def _stored(secret: Secret, identity: Identity) -> Credential:
    if isinstance(secret, str):
        return Credential(identity.machine_id, identity.source, secret)
    return Credential(identity.machine_id, identity.source, key=secret.key, generation=str(secret.generation))
