"""Open calls of users: streams and streamed files. Each call ends when the session, token or rights that opened it end.

One thread compares all open calls of this process with the database, twice a second and in a fixed number of queries.
This also detects ends without a timeline entry, such as a sign-out or an expired token.
"""

import asyncio
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from http.cookies import CookieError, SimpleCookie
from typing import Any

from django.conf import settings

from fleet.domain.people import Access
from fleet.domain.reasons import Refused
from fleet.domain.secrets import prefix_of
from fleet.domain.sign_on import ToldByProxy, told_by_proxy
from fleet.gateway.http import Request
from fleet.gateway.threads import Loop
from fleet.operations import clock
from fleet.operations.access import CREDENTIALS, AccessStates
from fleet.projections.people import rights

PAUSE_SECONDS = 0.5
# In addition to the calls whose state has changed, this many are checked in full each time, the longest unchecked
# first.
CHECKED_ANYWAY = 5


@dataclass(frozen=True, slots=True)
class CallCredentials:
    """Credentials of a user's call: a token or else a session key, the client address, and the user stated by the login
    proxy.
    """

    token: str
    session_key: str
    address: str
    proxy_user: ToldByProxy | None


def credentials_of(request: Request) -> CallCredentials:
    """Return the credentials of a request in the same way in which Django reads them."""
    scope = request.scope
    client = scope.get("client")
    _, proxy_user = told_by_proxy(scope["headers"], peer=str(client[0]) if client else "", by=settings.PROXY_SIGN_IN)
    return CallCredentials(request.bearer, session_key(request), request.client, proxy_user)


def session_key(request: Request) -> str:
    try:
        morsel = SimpleCookie(request.header(b"cookie").decode("latin-1")).get(settings.SESSION_COOKIE_NAME)
    except CookieError:
        return ""
    return morsel.value if morsel else ""


@dataclass(frozen=True, slots=True)
class FoundAccess:
    """The access that credentials give, with the names of the account and of the token (empty for a session)."""

    access: Access
    name: str
    token_name: str = ""


def access_of(by: CallCredentials, *, now: datetime) -> FoundAccess | None:
    """Return the account and current access of a token or session; None if it is not valid. Raises Refused
    `not-permitted` if the token is not accepted from this address.
    """
    if by.token:
        found = CREDENTIALS.person_of_token(token=by.token, now=now, address=by.address)
        if found is None:
            return None
        person, row = found
        return FoundAccess(Access(person.pk, rights(person), tuple(row.scopes)), person.get_username(), row.name)
    user = (
        CREDENTIALS.person_of_session(session_key=by.session_key, told=by.proxy_user, now=now)
        if by.session_key
        else None
    )
    return FoundAccess(Access(user.pk, rights(user)), user.get_username()) if user else None


@dataclass(eq=False, slots=True)
class OpenCall:
    """One open call: its access, and what to interrupt when that ends. Use it only in the event loop's thread."""

    by: CallCredentials
    access: Access
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    # Its access has ended: nothing more may be sent.
    over: bool = False
    # Whatever waits for the client inside of this is interrupted.
    interrupts: asyncio.Timeout | None = None
    # As it was last compared; nothing before the first time.
    state: tuple[Any, Any] | None = None
    checked_at: float = 0.0

    def end(self) -> None:
        """Interrupt the call because its access has ended."""
        self.over = True
        if self.interrupts is not None:
            self.interrupts.reschedule(self.loop.time())


class OpenCalls:
    """The open calls of users in this process."""

    def __init__(self) -> None:
        self.loop = Loop("open-calls", self.compare, pause=PAUSE_SECONDS)
        self._lock = threading.Lock()
        self._calls: set[OpenCall] = set()

    def open(self, by: CallCredentials, access: Access) -> OpenCall:
        """Register a call, so that it is interrupted when this access ends."""
        call = OpenCall(by, access)
        with self._lock:
            self._calls.add(call)
        return call

    def close(self, call: OpenCall) -> None:
        call.interrupts = None
        with self._lock:
            self._calls.discard(call)

    def compare(self) -> None:
        """Interrupt the calls whose access has ended or changed."""
        with self._lock:
            calls = list(self._calls)
        if not calls:
            return
        states = CREDENTIALS.states(
            accounts={call.access.person for call in calls},
            sessions={call.by.session_key for call in calls if not call.by.token},
            tokens={prefix_of(call.by.token) for call in calls if call.by.token},
            now=clock.now(),
        )
        lost, unsure = [], []
        for call in calls:
            state = _state_of(call, states)
            if state is None:
                lost.append(call)
            elif state != call.state:
                unsure.append((call, state))
        # Those that ended for sure go first, however many are to be checked.
        _end(lost)
        changed = {call for call, _ in unsure} | set(lost)
        rest = sorted((call for call in calls if call not in changed), key=lambda call: call.checked_at)
        for call, state in [*unsure, *((call, call.state) for call in rest[:CHECKED_ANYWAY])]:
            if _access_now(call) != call.access:
                _end([call])
            call.state, call.checked_at = state, time.monotonic()


def _state_of(call: OpenCall, states: AccessStates) -> tuple[Any, Any] | None:
    """Return the current facts on which the call's access depends; None if the session or token is gone or the rights
    changed.
    """
    account = states.accounts.get(call.access.person)
    credential = (
        states.tokens.get(prefix_of(call.by.token)) if call.by.token else states.sessions.get(call.by.session_key)
    )
    if account is None or credential is None or account.rights != call.access.rights:
        return None
    return account, credential


def _access_now(call: OpenCall) -> Access | None:
    try:
        found = access_of(call.by, now=clock.now())
    except Refused:
        return None
    return found.access if found is not None else None


def _end(calls: Iterable[OpenCall]) -> None:
    for call in calls:
        call.loop.call_soon_threadsafe(call.end)
