"""Search for objects by name and for pages, and saved views of lists."""

from typing import Any

from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse

from fleet.dashboard.pages import Asked, action_view, done, filters_of, page, read_view
from fleet.dashboard.places import ADMIN, PLACES, Tab
from fleet.domain.people import Rights
from fleet.operations import saved_views as kept
from fleet.projections.desk import find

# A user's own pages belong to no area.
OWN = (Tab("Your settings and tokens", "you"), Tab("Your views", "views"), Tab("Change your password", "you-password"))
LONGEST = 200


def pages_named(text: str, rights: Rights) -> list[Tab]:
    """Return the pages that these rights open and whose name contains each word of the text."""
    words = text.lower().split()
    named = [(f"{area.label} {tab.label}", tab) for area in (*PLACES, ADMIN) for tab in area.tabs_for(rights)]
    named += [(tab.label, tab) for tab in OWN]
    return [tab for name, tab in named if words and all(word in name.lower() for word in words)]


@read_view
def find_page(request: Asked) -> HttpResponse:
    """Search all named objects. The search box of every page requests the part while the user types."""
    text = request.GET.get("q", "")[:LONGEST].strip()

    def found() -> dict[str, Any]:
        return {
            "found": find.find(text, rights=request.rights),
            "pages": pages_named(text, request.rights),
            "views": find.saved_views(user_id=request.user.pk, named=text),
        }

    return page(request, "desk/find.html", {"desk/found.html": found}, text=text)


def views_answer(request: Asked, /, **context: Any) -> HttpResponse:
    """Return all views that the user can open, also in response to a refused form about one."""
    context.pop("view_id", None)
    return page(request, "desk/views.html", views=find.saved_views(user_id=request.user.pk), **context)


view_list = read_view(views_answer)


@action_view(views_answer)
def save_view(request: Asked) -> HttpResponse:
    sent = {**request.POST.dict(), "query": filters_of(QueryDict(request.POST.get("query", "")))}
    row = kept.save_view(kept.ViewForm(sent), actor=request.actor, now=request.now)
    done(request, f"The view “{row.name}” was saved.", row.page)
    return redirect(reverse(row.page) + (f"?{row.query}" if row.query else ""))


@action_view(views_answer)
def delete_view(request: Asked, view_id: int) -> HttpResponse:
    row = kept.delete_view(actor=request.actor, view_id=view_id, now=request.now)
    return done(request, f"The view “{row.name}” was deleted.", "views")
