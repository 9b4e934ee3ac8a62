"""Verification of calls signed with a machine's key, and the keys that sign orders."""

import hmac
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

from drydock_agent import wire

from fleet.domain.machines.enrolment import call_signature
from fleet.domain.orders.series import SignatureCheck, check_of
from fleet.gateway.http import Problem, Request
from fleet.gateway.threads import Threads
from fleet.operations.machines.keys import possible_keys
from fleet.operations.orders import sign

# How long cached keys are used; a key that is not among them was created since, or is not the backend's.
SECONDS = 30.0
SECONDS_IF_UNKNOWN = 0.25
# A fleet trusts one set of keys, or two during a rotation; other sets are judged at each call.
MOST_JUDGED = 100


class Keys:
    """Cache of the keys that sign orders."""

    def __init__(self, threads: Threads) -> None:
        self.threads = threads
        self._known: list[sign.KnownKey] | None = None
        self._ids: frozenset[str] = frozenset()
        self._read_at = 0.0
        self._judged: dict[str, tuple[SignatureCheck | None, bool]] = {}

    async def look(self, now: datetime, trusted: Collection[str] = ()) -> None:
        """Read the keys from Postgres if the cached ones are old, or lack a key of an agent that trusts the key ids
        `trusted`. Concurrent callers share one query. Raises Problem 503 if Postgres is unavailable.
        """
        seconds = SECONDS if self._ids.issuperset(trusted) else SECONDS_IF_UNKNOWN
        if self._known is None or time.monotonic() >= self._read_at + seconds:
            await self.threads.share(self._refresh, now)

    def _refresh(self, now: datetime) -> None:
        self._known = sign.all_keys(now=now)
        self._ids = frozenset(key.key_id for key in self._known)
        self._judged = {}
        self._read_at = time.monotonic()

    def check(self, trusted: Sequence[str] | None) -> SignatureCheck | None:
        """Return how an agent that trusts these key ids checks the signatures of orders, or None before the keys could
        be read. `trusted` is None if the agent checks none.
        """
        return check_of(trusted, self._ids) if self._known is not None else None

    def news_for(self, trusted: Sequence[str]) -> list[wire.KeyNotice]:
        return sign.news_for(self._known or (), trusted)

    def judged(self, trusted: str | None) -> tuple[SignatureCheck | None, bool]:
        """Return the same as `check` for key ids separated by commas, and whether there are key notices for that agent.
        None: the agent checks no signatures.
        """
        if trusted is None:
            return self.check(None), False
        judged = self._judged
        found = judged.get(trusted)
        if found is None:
            ids = read_ids(trusted)
            found = self.check(ids), bool(self.news_for(ids))
            if len(judged) < MOST_JUDGED:
                judged[trusted] = found
        return found


def read_ids(text: str) -> list[str]:
    """Return the key ids of a long poll, which are separated by commas."""
    return [part for part in text.split(",") if part]


# Calls signed with a machine's own key: checked before any query, and each accepted once by a process.

PREFIX = wire.SIGNED.lower().encode() + b" "
SKEW_MILLISECONDS = wire.MAX_SKEW_SECONDS * 1000
LONGEST = 1000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# Not frozen: one is created for each call, and a frozen dataclass would cost three times as much.
@dataclass(slots=True)
class SignedCall:
    """A call with a valid signature.

    `found_by` is the name of its key. `today`: the key is derived from the current SECRET_KEY. `at` is the signing time
    in milliseconds since 1970, `mark` the signature.
    """

    vm_id: str
    found_by: str
    today: bool
    at: int
    mark: str

    @property
    def signed_at(self) -> datetime:
        return EPOCH + timedelta(milliseconds=self.at)


class Repeated(Problem):
    """Raised if a call with the same signature was accepted before."""

    def __init__(self) -> None:
        super().__init__(401, "not-authenticated", "This signature was used before: sign each call separately.")


class SignedCalls:
    """Verification of signed calls, with the signatures that this process accepted within their lifetime.

    Memory is bounded: only valid signatures are stored, and the number of calls of a machine is limited.
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._before: set[str] = set()
        self._turned = 0

    def read(self, request: Request, now: datetime) -> SignedCall | None:
        """Verify the signature of a call and return it; None if the call is not signed. Raises Problem 401, and
        `Repeated` if it was accepted before.
        """
        header = request.header(b"authorization")
        if header[: len(PREFIX)].lower() != PREFIX:
            return None
        parts = header[len(PREFIX) :].decode("latin-1").split(" ")
        if len(parts) != 6 or not header.isascii() or len(header) > LONGEST:
            raise _wrong("This call is not signed as the protocol says.")
        quoted, generation, at, call_id, body_hash, mark = parts
        if not (generation.isdecimal() and at.isdecimal() and len(generation) < 20 and len(at) < 20):
            raise _wrong("This call is not signed as the protocol says.")
        scope = request.scope
        query = scope["query_string"].decode("latin-1")
        target = f"{scope['path']}?{query}" if query else scope["path"]
        text = wire.call_text(scope["method"], target, body_hash, at, call_id)
        vm_id = unquote(quoted) if "%" in quoted else quoted
        for number, (key, found_by) in enumerate(possible_keys(vm_id, int(generation))):
            if hmac.compare_digest(call_signature(key, text), mark):
                self._take(mark, int(at), now)
                request.signed_hash = body_hash
                return SignedCall(vm_id, found_by, number == 0, int(at), mark)
        raise _wrong("The signature of this call is not that of its machine's key: enrol again.")

    def _take(self, mark: str, at: int, now: datetime) -> None:
        milliseconds = int(now.timestamp() * 1000)
        if abs(milliseconds - at) > SKEW_MILLISECONDS:
            sentence = f"Signed more than {wire.MAX_SKEW_SECONDS} seconds from the server's time: sign it again."
            raise Problem(401, "clock-skewed", sentence, server_time=now)
        # Twice the skew: a call of the future counts until then.
        turn = milliseconds // (2 * SKEW_MILLISECONDS)
        if turn != self._turned:
            self._before = self._taken if turn == self._turned + 1 else set()
            self._taken, self._turned = set(), turn
        if mark in self._taken or mark in self._before:
            raise Repeated
        self._taken.add(mark)


def _wrong(sentence: str) -> Problem:
    return Problem(401, "not-authenticated", sentence)
