"""What every hook has in common: who signed it, how long it may be, and as whom it acts."""

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import Any

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from fleet.domain import actor
from fleet.domain.actor import REQUEST_ID, Actor
from fleet.domain.texts import readable
from fleet.domain.times import clamped
from fleet.operations import clock
from fleet.operations.messages import hooks
from fleet.operations.messages.hooks import HookChannel

# As the gateway's, which has not let in more; a press of a button carries its whole card.
MOST_BYTES = 256 * 1024
HEX = frozenset("0123456789abcdef")
# Of a row's number.
LARGEST = 2**63 - 1


class NotSignedError(Exception):
    """Nobody who knows the channel's secret has sent it, or not just now."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """One call that has not been looked at yet."""

    request: HttpRequest
    channel_id: int
    now: datetime

    def header(self, name: str) -> str:
        return str(self.request.headers.get(name, ""))

    def body(self) -> bytes:
        return self.request.body

    def signed_by(self, kind: str, told: list[str], *, before: bytes = b"") -> HookChannel:
        """The channel with whose secret one of these (hex HMAC-SHA256 each) was made, over `before` and the body.

        Raises NotSignedError.
        """
        sane = [one for one in told if len(one) == 64 and set(one) <= HEX][:8]
        # What carries no signature costs no question.
        found = hooks.channel_of(channel_id=self.channel_id, kind=kind, now=self.now) if sane else None
        if found is None:
            raise NotSignedError
        made = hmac.new(found.signing_secret.encode(), before + self.body(), hashlib.sha256).hexdigest()
        if not any(hmac.compare_digest(made, one) for one in sane):
            raise NotSignedError
        return found

    def actor(self, person: User, via: str, channel: HookChannel) -> Actor:
        """The person as whom it acts."""
        meta = self.request.META
        return actor.person(
            person,
            via,
            token_name=channel.name,
            request_id=meta.get(REQUEST_ID, ""),
            address=meta["REMOTE_ADDR"],
        )


Hook = Callable[[Incoming], HttpResponse]


def hook(view: Hook) -> Callable[..., HttpResponse]:
    """A view for calls of programs: they carry no cookie, so there is nothing to forge, and a signature instead."""

    @csrf_exempt
    @require_POST
    @wraps(view)
    def answer(request: HttpRequest, channel: int) -> HttpResponse:
        size = str(request.META.get("CONTENT_LENGTH") or "0")
        # Before it is read.
        if not size.isdecimal() or int(size[:12]) > MOST_BYTES:
            return HttpResponse(status=413)
        if channel > LARGEST:
            return HttpResponse(status=401)
        try:
            # Whoever sent it sends it again.
            if not clock.may_decide():
                return HttpResponse(status=503)
            return view(Incoming(request, channel, clock.now()))
        except NotSignedError:
            return HttpResponse(status=401)

    return answer


def taken() -> HttpResponse:
    """Whoever sent it need not send it again."""
    return HttpResponse(status=200)


def time_of(text: Any) -> datetime | None:
    """An ISO 8601 time, within the years that count; None where it is none."""
    try:
        return clamped(datetime.fromisoformat(str(text)))
    except (ValueError, OverflowError):
        return None


def inside(value: Any, *names: str) -> Any:
    """What stands there in a JSON object; None where anything on the way is something else."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def text_inside(value: Any, *names: str) -> str:
    """The text that stands there, fit for the database; empty where there is none."""
    found = inside(value, *names)
    return readable(found.encode("utf-8", "replace").decode()) if isinstance(found, str) else ""
