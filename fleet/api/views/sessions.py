"""Sessions of people in browsers: one's own, and for admins those of anybody."""

from typing import Any

from rest_framework.request import Request

from fleet.api.authentication import person_of
from fleet.api.calls import Call
from fleet.api.describe import describe
from fleet.api.problems import Problem
from fleet.api.shapes.people import EndedSessions, EndedSessionsShape, EndSessionsSerializer, SessionShape
from fleet.operations.people import sessions as ending
from fleet.projections import people
from fleet.projections.pages import Page
from fleet.projections.people.sessions import SessionRow, sessions

UNKNOWN = ("unknown-person",)


class Sessions(Call):
    @describe(
        "list_sessions",
        "One's own sessions in browsers, those first that were seen last",
        "Where one is logged in: in which browser, from where, since when. A call with a token is none of them.",
        page=SessionShape,
    )
    def get(self) -> Page[SessionRow]:
        username = person_of(self.request).get_username()
        return sessions(username=username, session_key=key_of(self.request), now=self.now, **self.place)


class Session(Call):
    @describe(
        "end_session",
        "End a session at once: one's own, and for admins anybody's",
        "Its next request is refused, and its streams end.",
        needs="read",
    )
    def delete(self, session_id: int) -> None:
        carried: Any = self.request.auth
        ending.end(actor=self.actor, session_id=session_id, now=self.now, carried=carried)


class EndSessions(Call):
    @describe(
        "end_sessions",
        "End all of one's own sessions but this one; or all of somebody's, for admins",
        "By a token, which is no session, all of one's own end.",
        needs="read",
        problems=("unknown-person",),
        answer=EndedSessionsShape,
        body=EndSessionsSerializer,
    )
    def post(self) -> EndedSessions:
        carried: Any = self.request.auth
        username = self.wanted.get("person")
        if username is not None:
            found = ending.end_all(actor=self.actor, username=username, now=self.now, carried=carried)
        else:
            key = key_of(self.request)
            found = ending.end_others(actor=self.actor, session_key=key, now=self.now, carried=carried)
        return EndedSessions(found)


class PersonSessions(Call):
    @describe(
        "list_sessions_of_person",
        "Somebody's sessions in browsers, for admins",
        "As that person sees them.",
        needs="admin",
        page=SessionShape,
        missing=UNKNOWN,
    )
    def get(self, username: str) -> Page[SessionRow]:
        if people.detail(username=username) is None:
            raise Problem(*UNKNOWN)
        return sessions(username=username, session_key=key_of(self.request), now=self.now, **self.place)


def key_of(request: Request) -> str:
    """The key of the session that the call came with; empty for a token."""
    return str(request.session.session_key or "") if request.auth is None else ""
