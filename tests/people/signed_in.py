"""Sessions of people, begun without a browser."""

from datetime import UTC, datetime

from django.contrib.auth.models import User
from django.test import Client

from fleet.accounts import sessions
from fleet.accounts.models import PersonSession
from fleet.domain.secrets import hash_of

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:133.0) Gecko/20100101 Firefox/133.0"


def a_session(person: User, *, agent: str = FIREFOX, address: str = "192.0.2.1") -> PersonSession:
    """Return a session of this person that stays open."""
    client = Client()
    client.force_login(person)
    key, now = client.session.session_key or "", datetime.now(UTC)
    sessions.begin(user=person, session_key=key, way="password", agent=agent, address=address, now=now)
    return PersonSession.objects.get(key_hash=hash_of(key))
