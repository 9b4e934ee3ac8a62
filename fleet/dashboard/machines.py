"""Machines: their list, and the page of one."""

from functools import partial

from django.http import HttpResponse

from fleet.dashboard.pages import HISTORY_SIZE, Asked, history, known, listed, page, shown
from fleet.projections import machines
from fleet.projections.filters import MachineFilter
from fleet.projections.timeline import entries


@shown
def machine_list(request: Asked) -> HttpResponse:
    read = partial(machines.listing, now=request.now, machines=MachineFilter(request.GET).qs)
    return listed(request, "machines/list.html", "machines/machine_rows.html", read)


@shown
def machine_page(request: Asked, machine_id: int) -> HttpResponse:
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
    )
