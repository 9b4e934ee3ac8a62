"""Machines: their list, and the page of one."""

from functools import partial
from typing import Any

from django.http import HttpResponse

from fleet.dashboard.forms import CommentForm
from fleet.dashboard.pages import HISTORY_SIZE, Asked, acts, done, history, known, listed, page, shown
from fleet.operations.machines import revocation
from fleet.projections import machines
from fleet.projections.filters import MachineFilter
from fleet.projections.timeline import entries


@shown
def machine_list(request: Asked) -> HttpResponse:
    read = partial(machines.listing, now=request.now, machines=MachineFilter(request.GET).qs)
    return listed(request, "machines/list.html", "machines/machine_rows.html", read)


def machine_answer(request: Asked, /, machine_id: int, **context: Any) -> HttpResponse:
    found = known(machines.detail(machine_id=machine_id, now=request.now), "No machine has this number.")
    return page(
        request,
        "machines/page.html",
        {
            "machines/machine_body.html": dict,
            "timeline/history.html": lambda: history(
                entries.for_machine(machine_id=machine_id, cursor=None, size=HISTORY_SIZE), machine=machine_id
            ),
        },
        detail=found,
        **context,
    )


machine_page = shown(machine_answer)


@acts(machine_answer)
def revoke(request: Asked, machine_id: int) -> HttpResponse:
    actor = request.actor.because(CommentForm(request.POST).values["comment"])
    revocation.revoke(machine_id=machine_id, actor=actor, now=request.now)
    said = "Revoked: it is cut off, and nothing that it said counts any more."
    return done(request, said, "machine", machine_id=machine_id)


@acts(machine_answer)
def readmit(request: Asked, machine_id: int) -> HttpResponse:
    actor = request.actor.because(CommentForm(request.POST).values["comment"])
    revocation.readmit(machine_id=machine_id, actor=actor, now=request.now)
    return done(request, "Readmitted: it may enrol again, with a join token.", "machine", machine_id=machine_id)
