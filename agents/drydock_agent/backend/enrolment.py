"""The credential of this machine: kept, refused, and asked for anew with a join token."""

from __future__ import annotations

import threading
from collections.abc import Callable

from drydock_agent import wire
from drydock_agent.backend.client import BackendClient
from drydock_agent.backend.signatures import Keyring
from drydock_agent.machine import Identity, resource_name
from drydock_agent.settings.load import Settings
from drydock_agent.state_folder import Credential, StateFolder
from drydock_agent.version import agent_version


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
        self._secret = stored.secret if stored is not None and ours else None
        # Proves who this is when it enrols again, even after it was refused.
        self._last = self._secret or ""

    @property
    def secret(self) -> str | None:
        """The credential, or None while there is none that the backend takes."""
        with self._lock:
            return self._secret

    @property
    def possible(self) -> bool:
        """Whether there is a join token to enrol with."""
        return bool(self._settings.join_token)

    def refused(self, secret: str) -> None:
        """The backend answered 401 to `secret`. It stays on disk until there is another one."""
        with self._lock:
            if self._secret == secret and self.possible:
                self._secret = None

    def enrol(self, client: BackendClient) -> None:
        """Ask for a credential and store it. Raises what `client` raises, and `StateError`."""
        granted = client.enrol(
            wire.EnrolRequest(
                join_token=self._settings.join_token,
                machine_id=self._identity.machine_id,
                machine_id_source=self._identity.source,
                resource_name=resource_name(self._settings, self._identity.compute),
                availability_set=self._settings.availability_set,
                instance=self._identity.compute,
                agent_version=agent_version(),
                credential=self._last,
                ask=self._state.ask(),
            )
        )
        # Used even where it cannot be stored: the spool is full of news, and enrolling again costs only a warning.
        with self._lock:
            self._secret = self._last = granted.secret
        self._enrolled()
        self._keyring.enrolled(granted.signing_keys)
        self._state.keep_credential(Credential(self._identity.machine_id, self._identity.source, granted.secret))
