"""Views of machines, enrolment and the inventory. An inventory import can be tried first, which changes nothing."""

import json
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any
from urllib.parse import parse_qsl

from django import forms
from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse

from fleet.dashboard import charts, pages, timeline
from fleet.dashboard.agent_package import installer_address, packages, requirement
from fleet.dashboard.charts import Row, Series
from fleet.dashboard.forms import CommentForm, Sent, commented, refused_form
from fleet.dashboard.pages import Asked, action_view, done, form_view, history, known, listed, page, read_view
from fleet.domain.machines.enrolment import CA_FILE, install_lines
from fleet.domain.machines.inventory import read_inventory, read_json
from fleet.domain.people import Right
from fleet.domain.reasons import Refused
from fleet.domain.states import Presence
from fleet.operations import clock
from fleet.operations.machines import admissions, decommission, entrance
from fleet.operations.machines.decommission import MOST_AT_ONCE
from fleet.operations.machines.entrance import JoinTokenForm
from fleet.operations.machines.inventory import import_inventory, try_inventory
from fleet.operations.sets.changes import move_machine
from fleet.projections import counts, machines, sets
from fleet.projections.filters import MachineFilter
from fleet.projections.places import IdsField
from fleet.projections.timeline import entries
from fleet.wording.badges import badge_of
from fleet.wording.machines import VALUE_LABELS
from fleet.wording.say import say
from fleet.wording.times import page_reader

# The same limit as in the API. Pasted text, and text carried by a form from the trial to the import, is much smaller.
MOST_BYTES = 32 * 1024 * 1024
MOST_PASTED = 1024 * 1024
# The form with all of its fields.
MAX_FORM_BYTES = MOST_BYTES + 2 * MOST_PASTED
# Labels of machines whose value is not listed, or not known.
OTHER, NOT_STATED = "other", "not stated"
# At most this many rows of a trial are shown; the counts above them include all rows.
MOST_CHANGES = 500


class InventoryForm(Sent):
    wrong = f"Paste at most {MOST_PASTED // 1024**2} MiB: upload larger lists as files."
    pasted = forms.CharField(required=False, max_length=MOST_PASTED, strip=True)
    complete = forms.BooleanField(required=False)
    what = forms.ChoiceField(choices=[("try", ""), ("import", "")])


@pages.for_admins("You need the role admin to see the inventory.")
def inventory_answer(request: Asked, /, status: int = 200, **context: Any) -> HttpResponse:
    """Return the inventory page, with the submitted text `kept` in the form. It is also the response to a refused or
    tried import.
    """
    q, only = request.GET.get("q", "").replace("\x00", ""), request.GET.get("agent") == "none"
    read = partial(machines.inventory, q=q, without_agent=only)
    return listed(
        request,
        "machines/inventory.html",
        "machines/inventory_rows.html",
        read,
        status=status,
        without_agent=only,
        most=MOST_PASTED,
        **{"kept": "", **context},
    )


inventory_page = read_view("inventory/", "inventory")(inventory_answer)


@action_view("inventory/take/", "inventory-take", inventory_answer)
def take_inventory(request: Asked) -> HttpResponse:
    sent = InventoryForm(request.POST).values
    items, errors = _items(request.FILES.getlist("files"), sent["pasted"])
    if errors:
        return inventory_answer(request, status=422, errors=errors, sent=sent, kept=sent["pasted"])
    inventory, complete = read_inventory(items), sent["complete"]
    if sent["what"] == "try":
        trial = try_inventory(inventory=inventory, actor=request.actor, now=request.now, complete=complete)
        # The form carries exactly the tried text to the import, unless it is too long.
        text = json.dumps(items, ensure_ascii=False, separators=(",", ":"))
        carried = text if len(text) <= MOST_PASTED else ""
        shown, rest = trial.changes[:MOST_CHANGES], max(0, len(trial.changes) - MOST_CHANGES)
        return inventory_answer(request, trial=trial, changes=shown, rest=rest, kept=carried, sent=sent)
    found = import_inventory(inventory=inventory, actor=request.actor, now=request.now, complete=complete)
    said = f"Imported: {found.machines} machines, {found.new} of them new, {found.without_agent} without an agent."
    return done(request, said, "inventory")


def _items(files: Iterable["UploadedFile[Any]"], pasted: str) -> tuple[list[Any], list[tuple[str, str]]]:
    """Return the items of all files and the pasted text, and the name and error of each source that cannot be read."""
    reader = page_reader(clock.now())
    sources: list[tuple[str, Callable[[], bytes]]] = [
        (file.name or "a file", partial(file.read, MOST_BYTES + 1)) for file in files
    ]
    if pasted:
        sources.append(("Pasted text", pasted.encode))
    items: list[Any] = []
    errors: list[tuple[str, str]] = []
    for name, read in sources:
        raw = read()
        if len(raw) > MOST_BYTES:
            errors.append((name, f"An inventory may hold {MOST_BYTES // 1024**2} MiB at once."))
            continue
        try:
            printed = read_json(raw)
            # Each source is read separately, so that an error names its source.
            read_inventory(printed)
        except Refused as error:
            errors.append((name, say(error.reason, reader)))
            continue
        items += printed if isinstance(printed, list) else [printed]
    if not sources:
        errors.append(("No input", "choose files, or paste the output of `az`."))
    return items, errors


# Machines: the list, the page of one, machines that wait for admission, and join tokens for new ones.


@read_view("machines/", "machines")
def machine_list(request: Asked) -> HttpResponse:
    rows = MachineFilter(request.GET, now=request.now).qs
    read = partial(machines.listing, now=request.now, machines=rows)
    # Counting reads all machines that match, so the page requests it afterwards; without scripts, a link does.
    is_counting = bool(request.htmx) or request.GET.get("as") == "counts"
    counted = {"machines/machine_counts.html": lambda: _chips(request, rows)} if is_counting else {}
    kept = parse_qsl(pages.query_with(request, q="", cursor=""))
    filters = [(name, value) for name in MachineFilter.base_filters for value in request.GET.getlist(name)]
    context: dict[str, Any] = {"kept": kept, "filters": filters, "most": MOST_AT_ONCE}
    return listed(request, "machines/list.html", "machines/machine_rows.html", read, counted, **context)


class DecommissionForm(CommentForm):
    wrong = f"Select 1 to {MOST_AT_ONCE} machines. The comment has up to 2,000 characters."
    machine = IdsField(required=False, most=MOST_AT_ONCE)
    all = forms.BooleanField(required=False)


@pages.for_admins("You need the role admin to decommission machines.")
def decommission_answer(request: Asked, /, **context: Any) -> HttpResponse:
    """Return the page that shows the selected machines before they are decommissioned. It is also the response to a
    refused form.
    """
    form = DecommissionForm(request.POST if request.method == "POST" else request.GET)
    ids = form.cleaned_data["machine"] if form.is_valid() else []
    if form.is_valid() and form.cleaned_data["all"]:
        not_heard = Presence.SILENT, Presence.GONE, Presence.EXPECTED
        found = counts.with_presences(MachineFilter(request.GET, now=request.now).qs, *not_heard, now=request.now)
        ids = list(found.order_by("resource_name", "pk").values_list("pk", flat=True)[:MOST_AT_ONCE])
    rows = machines.chosen(machine_ids=ids, now=request.now)
    return page(request, "machines/decommission.html", rows=rows, **context)


@form_view("machines/decommission/", "machines-decommission")
def decommission_machines(request: Asked) -> HttpResponse:
    try:
        return _decommission(request) if request.method == "POST" else decommission_answer(request)
    except Refused as error:
        return decommission_answer(request, sent=request.POST, **pages.refused(error))


def _decommission(request: Asked) -> HttpResponse:
    sent = DecommissionForm(request.POST).values
    if not sent["machine"]:
        raise Refused("validation", DecommissionForm.wrong)
    names = {row.id: row.resource_name for row in machines.chosen(machine_ids=sent["machine"], now=request.now)}
    actor = request.actor.because(sent["comment"])
    found = decommission.decommission_each(machine_ids=sent["machine"], actor=actor, now=request.now)
    results = [
        (machine_id, names.get(machine_id, machine_id), pages.refused(error)["refusal"] if error is not None else None)
        for machine_id, error in found.items()
    ]
    return page(request, "machines/decommission.html", results=results)


def _chips(request: Asked, rows: Any) -> dict[str, Any]:
    """Return the template context with the numbers of these machines (a query) by value, as links that filter the
    list, and the chart of their versions.
    """
    found = counts.machines_by_value(rows)
    by_version = [
        Row(OTHER if version is None else version or NOT_STATED, tuple(getattr(count, one.value) for one in Presence))
        for version, count in counts.presence_by_version(rows, now=request.now)
    ]
    series = [Series(badge.label, badge.tone) for badge in map(badge_of, Presence)]
    table = charts.counted("versions", "Agent versions and presence", "Version", series, by_version)
    return {
        "value_chips": [
            (label, [_chip(request, name, row) for row in getattr(found, name)]) for name, label in VALUE_LABELS.items()
        ],
        "version_chart": charts.bars(table) if table else None,
    }


def _chip(request: Asked, name: str, row: counts.ValueCount) -> dict[str, Any]:
    """Return a value with its number of machines. The link filters by it, or no longer does if it `is_chosen`. Without
    a link: all values that are not listed.
    """
    if row.value is None:
        return {"label": OTHER, "machines": row.machines}
    parameter, value, label = (name, row.value, row.value) if row.value else ("not_stated", name, NOT_STATED)
    is_chosen = value.lower() in (each.lower() for each in request.GET.getlist(parameter))
    query = pages.query_with(request, **{"cursor": "", parameter: "" if is_chosen else value})
    return {"label": label, "machines": row.machines, "link": f"?{query}", "is_chosen": is_chosen}


def machine_answer(request: Asked, /, machine_id: int, **context: Any) -> HttpResponseBase:
    found = known(machines.detail(machine_id=machine_id, now=request.now), "No machine has this number.")
    drawn = cache(lambda: timeline.of_machine(request, found))
    if timeline.wants_file(request):
        return timeline.as_file(request, drawn(), "machine")
    if request.rights.may(Right.ADMINISTER):
        context |= {"named_sets": sets.named(), "waiting": machines.waiting(machine_id=machine_id)}
    return page(
        request,
        "machines/page.html",
        {
            "machines/machine_body.html": dict,
            "machines/machine_timeline.html": drawn,
            "timeline/history.html": lambda: history(
                partial(entries.for_machine, machine_id=machine_id), machine=machine_id
            ),
        },
        detail=found,
        query=timeline.query_of(request),
        **context,
    )


machine_page = read_view("machines/<int:machine_id>/", "machine")(machine_answer)


@action_view("machines/<int:machine_id>/revoke/", "machine-revoke", machine_answer)
def revoke(request: Asked, machine_id: int) -> HttpResponse:
    decommission.revoke(machine_id=machine_id, actor=commented(request), now=request.now)
    said = "Revoked: it is cut off, and nothing that it said counts any more."
    return done(request, said, "machine", machine_id=machine_id)


@action_view("machines/<int:machine_id>/discount/", "machine-discount", machine_answer)
def discount(request: Asked, machine_id: int) -> HttpResponse:
    decommission.discount(machine_id=machine_id, actor=commented(request), now=request.now)
    return done(request, "Reports discounted.", "machine", machine_id=machine_id)


class MoveForm(CommentForm):
    wrong = "Choose a set. The comment has up to 2,000 characters."
    set = forms.IntegerField(min_value=1)


@action_view("machines/<int:machine_id>/move/", "machine-move", machine_answer)
def move(request: Asked, machine_id: int) -> HttpResponse:
    sent = MoveForm(request.POST).values
    actor = request.actor.because(sent["comment"])
    move_machine(machine_id=machine_id, set_id=sent["set"], actor=actor, now=request.now)
    said = "Moved: it is in this set now, whatever else is stated."
    return done(request, said, "machine", machine_id=machine_id)


@action_view("machines/<int:machine_id>/lift/", "machine-lift", machine_answer)
def lift(request: Asked, machine_id: int) -> HttpResponse:
    move_machine(machine_id=machine_id, set_id=None, actor=commented(request), now=request.now)
    said = "Lifted: what is stated of its set counts again."
    return done(request, said, "machine", machine_id=machine_id)


class AdmissionsForm(CommentForm):
    wrong = "Select at least one request. The comment has up to 2,000 characters."
    ids = IdsField()
    decision = forms.ChoiceField(choices=[("admit", ""), ("refuse", "")])


def admissions_answer(request: Asked, /, **context: Any) -> HttpResponse:
    """Return the page of machines that wait for admission. It is also the response to a refused form, with the
    reason.
    """
    q, who = request.GET.get("q", "").replace("\x00", ""), request.GET.get("who", "")
    # More would be too many to review in one form.
    read = partial(machines.page_of_waiting, size=50, q=q, who=who)
    context["refused"] = machines.refused_enrolments()
    return listed(
        request, "machines/admissions.html", "machines/admission_rows.html", read, filtered=q or who, **context
    )


admission_list = read_view("admissions/", "admissions")(admissions_answer)


@action_view("admissions/decide/", "admissions-decide", admissions_answer)
def decide(request: Asked) -> HttpResponse:
    sent = AdmissionsForm(request.POST).values
    operation = admissions.admit if sent["decision"] == "admit" else admissions.refuse
    count = operation(ids=sent["ids"], actor=request.actor.because(sent["comment"]), now=request.now)
    said = "Admitted: {}. Each gets its credential when it asks again, within a minute."
    return done(request, (said if sent["decision"] == "admit" else "Refused: {}.").format(count), "admissions")


def tokens_answer(request: Asked, /, **context: Any) -> HttpResponse:
    """Return the page of join tokens and the machines enrolled with them. It is also the response to its forms:
    refused, or with a new token.
    """
    if request.rights.may(Right.ADMINISTER):
        tokens = machines.page_of_join_tokens(now=request.now, size=500).results
        context |= {"tokens": tokens, "form": context.get("form") or _token_form()}
    return page(request, "machines/join_tokens.html", **{"prefix": "", **context})


token_list = read_view("join-tokens/", "join-tokens")(tokens_answer)


def _token_form(data: Any = None) -> JoinTokenForm:
    """Return the form for a new join token, which offers the sets that have a name."""
    form = JoinTokenForm(data)
    names = [(row.id, " ".join(filter(None, (row.name, row.kind, row.resource_group)))) for row in sets.named()]
    form.fields["set_id"].widget = forms.Select({"class": "form-select"}, choices=[("", "none"), *names])
    return form


def created_token(request: Asked, form: JoinTokenForm) -> dict[str, Any]:
    """Create a join token. Return it with the install commands that contain it; the page shows them only once."""
    token, plain = entrance.create_join_token(form, actor=request.actor, now=request.now)
    certificates = settings.AGENT_CA_FILE
    lines = install_lines(
        fleet_url=settings.BASE_URL,
        join_token=plain,
        package=requirement(),
        # This file names the current agent for as long as the backend exists.
        current=f"{settings.BASE_URL}{reverse('agent-requirements')}",
        installer=installer_address(),
        certificates=certificates,
    )
    found = [name for name in packages() if not name.endswith(".json")]
    return {"new_token": token, "lines": lines, "packages": found, "ca_file": CA_FILE if certificates else ""}


@action_view("join-tokens/make/", "join-token-make", refused_form(tokens_answer, _token_form))
def make_token(request: Asked) -> HttpResponse:
    return tokens_answer(request, **created_token(request, JoinTokenForm(request.POST)))


@action_view("join-tokens/<str:prefix>/end/", "join-token-end", tokens_answer)
def end_token(request: Asked, prefix: str) -> HttpResponse:
    entrance.end_join_token(prefix=prefix, actor=request.actor, now=request.now)
    return done(request, "Join token revoked.", "join-tokens")
