"""Signature check of orders with the signing keys that this machine trusts. Needs the extra `signed`.

The keys are received with the first enrolment. A later key is trusted only if a trusted key signed its notice. An
attacker who controls a proxy, the broker or Redis can therefore delay an order, but not forge one.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Sequence
from hashlib import sha256
from importlib.util import find_spec

from drydock_agent import wire
from drydock_agent.backend.signature_verifier import Verifier
from drydock_agent.log_limiter import LogLimiter
from drydock_agent.state_folder import StateError, StateFolder

AUTO, ALWAYS, NEVER = "auto", "always", "never"


def available() -> bool:
    """Return whether the extra `signed` is installed."""
    return find_spec("cryptography") is not None


def key_of(public_key: str) -> wire.PublicKey:
    """Return the public key object, with its id, for 32 bytes in base64. Raises ValueError with a sentence for the
    user.
    """
    try:
        raw = base64.b64decode(public_key, validate=True)
    except ValueError:
        raw = b""
    if len(raw) != 32:
        raise ValueError("A signing key is 32 bytes in base64, as `drydock-fleet rotate_signing_key` prints it.")
    return wire.PublicKey(id=sha256(raw).hexdigest()[:16], public_key=public_key)


class Keyring:
    """The trusted signing keys, stored in the state folder. In the mode `auto`, signatures are checked if there are
    keys and the library is installed.
    """

    def __init__(self, *, state: StateFolder, mode: str, limiter: LogLimiter, verifier: Verifier | None = None) -> None:
        self._verifier = verifier or Verifier()
        self._state = state
        self._mode = mode
        self._limiter = limiter
        self._lock = threading.Lock()
        self._is_checking = mode == ALWAYS or (mode == AUTO and available())
        self._keys: dict[str, str] = state.signing_keys() if self._is_checking else {}
        # Key ids of the last enrolment's response if none of them was trusted then.
        self._untrusted: frozenset[str] = frozenset()
        if mode == ALWAYS and not self._keys:
            limiter.warn("signing", "No signing key is known yet, so every order is refused until this machine enrols.")

    @property
    def trusted(self) -> list[str] | None:
        """The ids of the trusted keys, or None if signatures are not checked."""
        with self._lock:
            return sorted(self._keys) if self._is_checking else None

    def enrolled(self, keys: Sequence[wire.PublicKey]) -> None:
        """Trust these keys if this is the first enrolment. Raises `StateError` if they cannot be stored.

        Keys of later enrolments are ignored, because an attacker on the network could forge the response. A new key
        needs a signed notice; if all keys are lost, the owner of the machine runs `trust`.
        """
        if not self._is_checking:
            return
        with self._lock:
            if not self._keys:
                self._keys = {key.id: key.public_key for key in keys}
                if self._keys:
                    self._state.keep_signing_keys(self._keys)
            else:
                # After a rotation, the notices of the next report may introduce them.
                named = frozenset(key.id for key in keys)
                self._untrusted = named if named.isdisjoint(self._keys) else frozenset()

    def apply_notices(self, notices: Sequence[wire.KeyNotice]) -> None:
        """Add or remove keys according to notices that a trusted key has signed. The last key is never removed."""
        if not self._is_checking:
            return
        with self._lock:
            before = dict(self._keys)
            for notice in notices:
                signer = self._keys.get(notice.by)
                if signer is None or not self._verifier.any_verifies(
                    [(signer, notice.signature)], wire.key_text(notice)
                ):
                    self._limiter.warn("signing", f"The notice of signing key {notice.id} has no trusted signature.")
                elif not notice.retired:
                    self._keys[notice.id] = notice.public_key
                elif notice.by != notice.id:
                    self._keys.pop(notice.id, None)
            if self._keys != before:
                try:
                    self._state.keep_signing_keys(self._keys)
                except StateError as error:
                    self._limiter.warn("signing", f"The signing keys cannot be kept: {error}")
            if self._untrusted and self._untrusted.isdisjoint(self._keys):
                self._limiter.warn(
                    "signing",
                    f"The backend's signing keys {', '.join(sorted(self._untrusted))} are signed by no trusted key. If"
                    " it has lost its keys, run `drydock-agent trust KEY`.",
                )
            self._untrusted = frozenset()

    def signature_fault(self, order: wire.Order) -> str:
        """Return the reason why the signatures of an order are not trusted (`unsigned`, `bad-signature`), or an empty
        string.
        """
        if not self._is_checking:
            return ""
        with self._lock:
            keys = dict(self._keys)
        if not keys and self._mode == AUTO:
            # The machine enrolled before signing keys existed, or without the library.
            self._limiter.warn("signing", "Orders are not checked: this machine has no signing key; enrol it again.")
            return ""
        if not order.signatures:
            return "unsigned"
        signed = [(keys[one.key], one.value) for one in order.signatures if one.key in keys]
        return "" if self._verifier.any_verifies(signed, wire.order_text(order)) else "bad-signature"
