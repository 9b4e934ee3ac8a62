"""One's own sessions, and for admins those of anybody."""

from typing import Any

from django.contrib.auth import logout
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect

from fleet.dashboard.pages import Asked, acts, done, page, shown
from fleet.dashboard.people.members import person_answer
from fleet.operations.people import sessions as ending
from fleet.projections.people.sessions import SessionRow, sessions

# So many are shown.
MOST = 100


def sessions_answer(request: Asked, /, **context: Any) -> HttpResponse:
    context.pop("session_id", None)
    return page(request, "people/sessions.html", sessions=_own(request), **context)


sessions_page = shown(sessions_answer)


@acts(sessions_answer)
def end_session(request: Asked, session_id: int) -> HttpResponseBase:
    this = any(row.this and row.id == session_id for row in _own(request))
    row = ending.end(actor=request.actor, session_id=session_id, now=request.now)
    if this:
        logout(request)
        return redirect("account_login")
    if row.user_id != request.user.pk:
        return done(request, "The session has ended.", "person", username=row.user.get_username())
    return done(request, "The session has ended.", "you-sessions")


@acts(sessions_answer)
def end_others(request: Asked) -> HttpResponse:
    key = str(request.session.session_key)
    count = ending.end_others(actor=request.actor, session_key=key, now=request.now)
    return done(request, _ended(count), "you-sessions")


@acts(person_answer)
def end_all(request: Asked, username: str) -> HttpResponse:
    count = ending.end_all(actor=request.actor, username=username, now=request.now)
    return done(request, _ended(count), "person", username=username)


def _own(request: Asked) -> tuple[SessionRow, ...]:
    key = str(request.session.session_key)
    return sessions(username=request.user.get_username(), session_key=key, now=request.now, size=MOST).results


def _ended(count: int) -> str:
    return f"{count} session{'' if count == 1 else 's'} ended." if count else "There was none to end."
