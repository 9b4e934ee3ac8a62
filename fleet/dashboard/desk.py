"""Views of the front page with the decision queue, blind spots, search, saved views, and the onboarding checklist."""

from collections.abc import Mapping
from functools import cache, partial
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.debug import sensitive_post_parameters

from fleet.dashboard.forms import Sent, line
from fleet.dashboard.machines import created_token
from fleet.dashboard.pages import Asked, action_view, done, filters_of, for_admins, listed, page, query_with, read_view
from fleet.dashboard.places import ADMIN, PLACES, Tab
from fleet.dashboard.sets import KINDS
from fleet.domain.blind_spots import ORDER
from fleet.domain.machines.enrolment import CHOICES
from fleet.domain.people import Right
from fleet.domain.reasons import Reason
from fleet.operations import profile
from fleet.operations.machines import entrance
from fleet.operations.sets import changes
from fleet.operations.sets.changes import SetNameForm
from fleet.projections import blind_spots, sets
from fleet.projections.caches import maintenances
from fleet.projections.desk import find, queue, readiness, selection, status_bar
from fleet.projections.timeline import entries


@read_view("blind-spots/", "blind-spots")
def blind_spot_page(request: Asked) -> HttpResponse:
    """Show all kinds of blind spots with the first rows of each; with `?kind=`, show all rows of one kind in pages."""
    kind = request.GET.get("kind", "")
    if kind in ORDER:
        read = partial(blind_spots.page, now=request.now, code=kind)
        title = Reason(f"{kind}.title")
        return listed(request, "blind_spots/kind.html", "blind_spots/kind_rows.html", read, kind=kind, title=title)
    return page(
        request,
        "blind_spots/page.html",
        {"blind_spots/blind_spot_rows.html": lambda: {"found": blind_spots.overview(now=request.now)}},
    )


# The front page: events that need a decision, then the sets, then the fleet's timeline.

# Number of sets below the queue, by the number of events in it: the page stays small while many events wait.
SETS_BELOW = ((queue.CARDS, 12), (queue.SHOWN, 6), (float("inf"), 3))
# Parts that every open front page requests at each change.
SAME = ("desk/head.html", "desk/queue.html", "desk/cards.html", "desk/under_maintenance.html", "desk/recent.html")

# At most this many types and services are offered as filters.
MAX_OFFERED = 8
# The filter by claim that leads to the reader's own name.
MINE = "me"


def _choices(request: Asked, found: queue.DecisionQueue, asked: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the filters that the queue offers: by claim, severity, and the types and services of its events. Each is a
    link that adds it to those in use (`asked`), or takes it away, with the number of events that it shows.

    They name no user, because readers share them; the filter of the reader's own claims states no number. One query.
    """
    types = {item.event.event_type for item in found.waiting} | {asked.get("type", "")}
    services = {item.place.service for item in found.waiting} | {asked.get("service", "")}
    offered = [("claim", "none", "Unclaimed"), ("severity", "critical", "Critical")]
    offered += [("type", name, name) for name in sorted(types - {""})][:MAX_OFFERED]
    offered += [("service", name, name) for name in sorted(services - {""})][:MAX_OFFERED]
    counts = queue.counts_of(
        [{**asked, name: value} for name, value, _ in offered], now=request.now, rights=request.rights
    )
    shows_own = asked.get("claim", "none") != "none"
    used = {**asked, "claim": MINE} if shows_own else asked

    def link(name: str, value: str, label: str, count: int | None) -> dict[str, Any]:
        others = {other: text for other, text in used.items() if other != name}
        is_chosen = used.get(name) == value
        query = urlencode(others if is_chosen else {**others, name: value})
        return {"label": label, "query": query, "is_chosen": is_chosen, "count": count}

    own = link("claim", MINE, "Mine", found.counts["waiting"] if shows_own else None)
    return [own, *(link(*choice, count) for choice, count in zip(offered, counts, strict=True))]


@read_view("", "queue")
def decision_queue(request: Asked) -> HttpResponse:
    """Show the front page. The browser requests each of its parts (`data-live`) again when the event stream reports a
    change.
    """
    now, me = request.now, request.user.get_username()
    if request.GET.get("claim") == MINE != me:
        return redirect(f"{request.path}?{query_with(request, claim=me)}")
    asked = {name: request.GET[name] for name in queue.FILTERS if request.GET.get(name)}
    only = queue.filter_of(asked)
    waiting = cache(lambda: queue.decision_queue(now=now, rights=request.rights, only=only))
    # For administrators, the page begins with the onboarding checklist while there was no event.
    may_begin = request.rights.may(Right.ADMINISTER) and request.own.first_steps and readiness.is_new()
    beginning = {"desk/first_steps.html": lambda: first_step_parts(request)} if may_begin else {}

    def cards() -> dict[str, Any]:
        most = next(most for up_to, most in SETS_BELOW if len(waiting().items) <= up_to)
        return {"cards": sets.cards(now=now, first=waiting().set_ids, limit=most)}

    return page(
        request,
        "desk/page.html",
        beginning
        | {
            "desk/queue.html": lambda: {
                "queue": waiting(),
                "pulse": waiting().pulse,
                "overview": status_bar.overview(now=now),
                "most": selection.MOST,
                "asked": asked,
                # All of a list can be selected only without a filter.
                "selectable": 0 if asked else waiting().counts["waiting"],
                # Filters are offered above five events.
                "choices": _choices(request, waiting(), asked) if asked or waiting().counts["waiting"] > 5 else (),
                "query": urlencode(asked),
            },
            "desk/cards.html": cards,
            "desk/under_maintenance.html": lambda: {"under_maintenance": maintenances.active()},
            "desk/recent.html": lambda: {"entries": entries.without_accounts(size=15).results},
        },
        same=SAME,
    )


@read_view("pulse/", "pulse")
def pulse(request: Asked) -> HttpResponse:
    """Return the part of the status bar with the number of waiting events and the shortest time left."""
    return page(request, "desk/head.html", same=SAME)


# Search for objects by name and for pages, and saved views of lists.

# A user's own pages belong to no area.
OWN = (Tab("Your settings and tokens", "you"), Tab("Your views", "views"), Tab("Change your password", "you-password"))
LONGEST = 200


@read_view("find/", "find")
def find_page(request: Asked) -> HttpResponse:
    """Show the results of a search over all named objects. The search box requests only the results while the user
    types.
    """
    text = request.GET.get("q", "")[:LONGEST].strip()

    def found() -> dict[str, Any]:
        words = text.lower().split()
        named = [(f"{one.label} {tab.label}", tab) for one in (*PLACES, ADMIN) for tab in one.tabs_for(request.rights)]
        named += [(tab.label, tab) for tab in OWN]
        return {
            "found": find.find(text, rights=request.rights),
            # Pages whose name contains each word.
            "pages": [tab for name, tab in named if words and all(word in name.lower() for word in words)],
            "views": find.saved_views(user_id=request.user.pk, named=text),
        }

    return page(request, "desk/find.html", {"desk/found.html": found}, text=text)


def views_answer(request: Asked, /, **context: Any) -> HttpResponse:
    """Return the page with all saved views that the user can open. It is also the response to a refused form, with the
    reason.
    """
    context.pop("view_id", None)
    return page(request, "desk/views.html", views=find.saved_views(user_id=request.user.pk), **context)


view_list = read_view("views/", "views")(views_answer)


@action_view("views/save/", "view-save", views_answer)
def save_view(request: Asked) -> HttpResponse:
    sent = {**request.POST.dict(), "query": filters_of(QueryDict(request.POST.get("query", "")))}
    row = profile.save_view(profile.ViewForm(sent), actor=request.actor, now=request.now)
    done(request, f"The view “{row.name}” was saved.", row.page)
    return redirect(reverse(row.page) + (f"?{row.query}" if row.query else ""))


@action_view("views/<int:view_id>/delete/", "view-delete", views_answer)
def delete_view(request: Asked, view_id: int) -> HttpResponse:
    row = profile.delete_view(actor=request.actor, view_id=view_id, now=request.now)
    return done(request, f"The view “{row.name}” was deleted.", "views")


# First steps: a checklist that creates a join token, shows the first agent, and ends with a drill.

FIRST_USES = 20
POLICIES = {
    "join": "A join token admits machines",
    "auto": "Azure attested documents admit machines of your subscriptions; an administrator admits the others",
    "attested": "Azure attested documents admit machines of your subscriptions; all others are refused",
    "admit": "An administrator admits each machine",
}


def first_step_parts(request: Asked) -> dict[str, Any]:
    """Return the template context of the onboarding checklist."""
    return {
        "steps": readiness.first_steps(now=request.now),
        "kinds": KINDS,
        # It is short: the user is waiting for it.
        "first_drill": {"type": "Freeze", "notice_seconds": 120, "duration_seconds": 10},
        "first_uses": FIRST_USES,
        "policies": POLICIES,
    }


@for_admins("You need the role admin to see the first steps.")
def steps_answer(request: Asked, /, **context: Any) -> HttpResponse:
    """Return the page of the onboarding checklist. It is also the response to its forms: refused, or with a new join
    token.
    """
    context.pop("set_id", None)
    return page(
        request, "desk/first_steps_page.html", {"desk/first_steps.html": lambda: first_step_parts(request)}, **context
    )


steps_page = read_view("first-steps/", "first-steps")(steps_answer)


class EntranceForm(Sent):
    wrong = "Choose how machines enrol."
    policy = forms.ChoiceField(choices=[(one.value, "") for one in CHOICES])
    subscriptions = line(4000)


@action_view("first-steps/entrance/", "first-steps-entrance", steps_answer)
def choose_entrance(request: Asked) -> HttpResponse:
    sent = EntranceForm(request.POST).values
    named = sent["subscriptions"].replace(",", " ").split()
    entrance.choose(policy=sent["policy"], subscriptions=named, actor=request.actor, now=request.now)
    return done(request, "Enrolment policy saved.", "first-steps")


@sensitive_post_parameters()
@action_view("first-steps/token/", "first-steps-token", steps_answer)
def make_token(request: Asked) -> HttpResponse:
    # For the first machines; the page of join tokens offers other times.
    stated = {"comment": "the first machines", "expires_in_seconds": 86_400, "max_uses": FIRST_USES}
    sent = {name: text for name, text in request.POST.items() if text}
    return steps_answer(request, **created_token(request, entrance.JoinTokenForm(stated | sent)))


@action_view("first-steps/sets/<int:set_id>/name/", "first-steps-name", steps_answer)
def name_set(request: Asked, set_id: int) -> HttpResponse:
    row = changes.change_set(SetNameForm(request.POST), set_id=set_id, actor=request.actor, now=request.now)
    return done(request, f"The set was named “{row.name}”.", "first-steps")


@action_view("first-steps/put-away/", "onboarding-dismiss", steps_answer)
def dismiss(request: Asked) -> HttpResponse:
    profile.choose(profile.ChoicesSerializer(data={"first_steps": False}), actor=request.actor, now=request.now)
    return done(request, "First steps hidden. You find them under Admin.", "queue")
