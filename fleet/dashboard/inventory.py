"""The inventory: what `az` printed, uploaded or pasted, tried without a change first; and what is known by it."""

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from django import forms
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpResponse
from django.shortcuts import render

from fleet.dashboard.forms import Sent
from fleet.dashboard.pages import Asked, acts, done, listed, shown
from fleet.domain.machines.inventory import read_inventory, read_json
from fleet.domain.people import Right
from fleet.domain.reasons import Refused
from fleet.operations import clock
from fleet.operations.machines.inventory import import_inventory, try_inventory
from fleet.projections import machines
from fleet.wording.say import say
from fleet.wording.times import page_reader

# As much as the API takes; what is pasted, or carried by a form from the trial to the import, is far less.
MOST_BYTES = 32 * 1024 * 1024
MOST_PASTED = 1024 * 1024
# The form with all of it.
MAX_FORM_BYTES = MOST_BYTES + 2 * MOST_PASTED
# How many rows of a trial are shown; the counts above them are of all.
MOST_CHANGES = 500


class InventoryForm(Sent):
    wrong = f"What is pasted may have up to {MOST_PASTED // 1024**2} MiB: upload larger lists as files."
    pasted = forms.CharField(required=False, max_length=MOST_PASTED, strip=True)
    complete = forms.BooleanField(required=False)
    what = forms.ChoiceField(choices=[("try", ""), ("import", "")])


def inventory_answer(request: Asked, /, status: int = 200, **context: Any) -> HttpResponse:
    """What is known, and the form with what is `kept` in it; also the answer to one that was refused, or tried."""
    if not request.rights.may(Right.ADMINISTER):
        reason = "The inventory needs the right of an admin."
        return render(request, "403.html", {"reason": reason}, status=403)
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


inventory_page = shown(inventory_answer)


@acts(inventory_answer)
def take_inventory(request: Asked) -> HttpResponse:
    sent = InventoryForm(request.POST).values
    items, errors = _items(request.FILES.getlist("files"), sent["pasted"])
    if errors:
        return inventory_answer(request, status=422, errors=errors, sent=sent, kept=sent["pasted"])
    inventory, complete = read_inventory(items), sent["complete"]
    if sent["what"] == "try":
        trial = try_inventory(inventory=inventory, actor=request.actor, now=request.now, complete=complete)
        # Exactly what was tried goes along to the import, where a form can carry it.
        text = json.dumps(items, ensure_ascii=False, separators=(",", ":"))
        carried = text if len(text) <= MOST_PASTED else ""
        rest = max(0, len(trial.changes) - MOST_CHANGES)
        shown_of = trial.changes[:MOST_CHANGES]
        return inventory_answer(request, trial=trial, changes=shown_of, rest=rest, kept=carried, sent=sent)
    found = import_inventory(inventory=inventory, actor=request.actor, now=request.now, complete=complete)
    said = f"Imported: {found.machines} machines, {found.new} of them new, {found.without_agent} without an agent."
    return done(request, said, "inventory")


def _items(files: Iterable["UploadedFile[Any]"], pasted: str) -> tuple[list[Any], list[tuple[str, str]]]:
    """What all of it lists, and of each source that cannot be read its name and why."""
    reader = page_reader(clock.now())
    sources: list[tuple[str, Callable[[], bytes]]] = [
        (file.name or "a file", partial(file.read, MOST_BYTES + 1)) for file in files
    ]
    if pasted:
        sources.append(("What was pasted", pasted.encode))
    items: list[Any] = []
    errors: list[tuple[str, str]] = []
    for name, read in sources:
        raw = read()
        if len(raw) > MOST_BYTES:
            errors.append((name, f"An inventory may hold {MOST_BYTES // 1024**2} MiB at once."))
            continue
        try:
            printed = read_json(raw)
            # Read one by one, so that an error names its source.
            read_inventory(printed)
        except Refused as error:
            errors.append((name, say(error.reason, reader)))
            continue
        items += printed if isinstance(printed, list) else [printed]
    if not sources:
        errors.append(("Nothing", "was sent: choose files, or paste what `az` printed."))
    return items, errors
