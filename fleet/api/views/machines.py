"""API calls about machines, join tokens, inventories from `az`, and blind spots."""

from collections.abc import Mapping
from typing import IO, Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.parsers import BaseParser

from fleet.api.calls import Call, filtered
from fleet.api.problems import Problem, refusal
from fleet.api.repeats import SHOWN_ONCE
from fleet.api.schema import describe, detail_call, filters_of, list_call
from fleet.api.shapes import requests
from fleet.api.shapes.answers import Decommissions, JoinToken
from fleet.domain.machines.inventory import read_inventory, read_json
from fleet.domain.shapes import from_row
from fleet.operations.machines import admissions, decommission, entrance
from fleet.operations.machines.inventory import Imported, import_inventory
from fleet.operations.sets.changes import move_machine
from fleet.projections import blind_spots, counts, machines
from fleet.projections.filters import AdmissionFilter, BlindSpotFilter, MachineFilter
from fleet.projections.pages import Page

MAX_INVENTORY_BYTES = 32 * 1024 * 1024
COMPLETE = "`true`: it lists all machines of the subscriptions and scale sets that occur in it: forget others."


class Printed(BaseParser):
    """Parser for the output of `az`: JSON of any shape. Raises Problem and Refused."""

    media_type = "application/json"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        raw = stream.read(MAX_INVENTORY_BYTES + 1)
        if len(raw) > MAX_INVENTORY_BYTES:
            raise Problem("too-large", f"An inventory may hold {MAX_INVENTORY_BYTES // 1024**2} MiB at once.")
        return read_json(raw)


class Inventory(Call, at="inventory/"):
    parser_classes = [Printed]

    @describe(
        "import_inventory",
        needs="admin",
        body={"application/json": OpenApiTypes.ANY},
        problems=("too-large",),
        parameters=[OpenApiParameter("complete", bool, description=COMPLETE)],
    )
    def post(self) -> Imported:
        """Import an inventory of machines and sets as `az` prints it

        The body is the unchanged output of `az vm list`, `az vm availability-set list`, `az vmss list-instances` or `az
        vmss list`, or several of them in one list.
        """
        complete = self.request.query_params.get("complete", "").lower() == "true"
        inventory = read_inventory(self.request.data)
        return import_inventory(inventory=inventory, actor=self.actor, complete=complete, now=self.now)


class BlindSpots(Call, at="blind-spots/"):
    @describe("list_blind_spots", parameters=filters_of(BlindSpotFilter))
    def get(self) -> Page[blind_spots.BlindSpotRow]:
        """List blind spots: places where Drydock would not see an announcement

        The most dangerous first. Each states its reason and what to do.
        """
        filters = BlindSpotFilter(self.request.query_params)
        filtered(self.request, filters)
        return blind_spots.page(now=self.now, **filters.asked_for(), **self.place)


# Machines and join tokens.

NO_TOKEN = ("not-found", "No join token begins like this.")


@list_call("list_machines", machines.listing, MachineFilter, "machines", orders=("resource_name", "enrolled_at"))
class Machines(Call, at="machines/"):
    """List machines by name

    Each with its set, its location in the data centre, the presence of its agent, and its warnings.
    """


class MachineCounts(Call, at="machines/counts/"):
    @describe("count_machines", parameters=filters_of(MachineFilter))
    def get(self) -> counts.MachineCounts:
        """Count machines by size, region, zone, agent version and api-version

        For the machines that match the filter of the list. Each list of values has at most 20, the most frequent first.
        """
        return counts.machines_by_value(self.filtered(MachineFilter))


@detail_call("get_machine", machines.detail, version="changed_at")
class Machine(Call, at="machines/<int:machine_id>/"):
    """Get a machine

    The presence of its agent, its warnings, and the open events that name it or its set. Also of a decommissioned one.
    """

    @describe(
        "decommission_machine",
        needs="admin",
        matches=True,
        body=requests.WhySerializer,
        problems=("machine-live", "machine-in-use"),
    )
    def delete(self, machine_id: int) -> None:
        """Decommission a silent or revoked machine

        It leaves lists, counts and blind spots, and its key ends. Its history stays. It returns as itself if it enrols
        again and an administrator admits it.
        """
        decommission.decommission(machine_id=machine_id, actor=self.commented, expected=self.expected, now=self.now)


class DecommissionMachines(Call, at="machines/decommission/"):
    @describe("decommission_machines", needs="admin", answer=Decommissions, body=requests.DecommissionRequestSerializer)
    def post(self) -> dict[str, Any]:
        """Decommission several machines, with one result for each

        A refusal does not stop the others.
        """
        ids = self.wanted["machines"]
        found = decommission.decommission_each(machine_ids=ids, actor=self.commented, now=self.now)
        results = [
            {"machine": machine_id, "problem": refusal(error) if error is not None else None}
            for machine_id, error in found.items()
        ]
        refused = sum(error is not None for error in found.values())
        return {"done": len(found) - refused, "refused": refused, "results": results}


class RevokeMachine(Call, at="machines/<int:machine_id>/revoke/"):
    @describe("revoke_machine", needs="admin")
    def post(self, machine_id: int) -> machines.MachineDetail | None:
        """Revoke a machine's credential

        Calls of its agent are rejected from now on. The agent then asks to enrol again, which an administrator has to
        admit. Its earlier reports stay.
        """
        decommission.revoke(machine_id=machine_id, actor=self.actor, now=self.now)
        return machines.detail(machine_id=machine_id, now=self.now)


class DiscountMachine(Call, at="machines/<int:machine_id>/discount/"):
    @describe("discount_machine", needs="admin", problems=("machine-live",))
    def post(self, machine_id: int) -> machines.MachineDetail | None:
        """Discount the reports of a silent or revoked machine

        Events that only this machine listed end as `unknown`. Sets and caches that only this machine named are deleted
        if they are empty. The timeline stays. Its reports count again once the machine reports.
        """
        decommission.discount(machine_id=machine_id, actor=self.actor, now=self.now)
        return machines.detail(machine_id=machine_id, now=self.now)


class MoveMachine(Call, at="machines/<int:machine_id>/move/"):
    @describe("move_machine", needs="admin", body=requests.MoveRequestSerializer)
    def post(self, machine_id: int) -> machines.MachineDetail | None:
        """Move a machine into a set and confine it there, or lift the confinement

        A confined machine stays in its set, whatever its metadata or an inventory states. Open events of both sets are
        computed again.
        """
        move_machine(machine_id=machine_id, set_id=self.wanted["set"], actor=self.commented, now=self.now)
        return machines.detail(machine_id=machine_id, now=self.now)


@list_call("list_admissions", machines.page_of_waiting, AdmissionFilter, "rows")
class Admissions(Call, at="admissions/"):
    """List machines that wait for admission, newest first

    Unknown machines, revoked ones, and known ones that enrol without their credential.
    """


class Admit(Call, at="admissions/admit/"):
    @describe("admit_machines", needs="admin", body=requests.AdmissionsRequestSerializer, problems=("not-found",))
    def post(self) -> tuple[machines.AdmissionRow, ...]:
        """Admit waiting machines, all or none

        Each gets a new credential with its next call, and its former credential is revoked then. The answer lists the
        machines that still wait.
        """
        admissions.admit(ids=self.wanted["ids"], actor=self.commented, now=self.now)
        return machines.waiting()


class RefuseAdmission(Call, at="admissions/refuse/"):
    @describe("refuse_admissions", needs="admin", body=requests.AdmissionsRequestSerializer, problems=("not-found",))
    def post(self) -> tuple[machines.AdmissionRow, ...]:
        """Refuse waiting machines, all or none

        They may ask again later. The answer lists the machines that still wait.
        """
        admissions.refuse(ids=self.wanted["ids"], actor=self.commented, now=self.now)
        return machines.waiting()


@detail_call("get_join_token", machines.join_token, needs="admin", missing=NO_TOKEN)
class OneJoinToken(Call, at="join-tokens/<str:prefix>/"):
    """Get a join token

    Without its secret: its expiry and the machines that enrolled with it.
    """

    @describe("end_join_token", needs="admin")
    def delete(self, prefix: str) -> None:
        """Revoke a join token

        It admits no more machines; those that enrolled with it stay enrolled. Tokens are identified by their `prefix`.
        """
        entrance.end_join_token(prefix=prefix, actor=self.actor, now=self.now)


@list_call("list_join_tokens", machines.page_of_join_tokens, needs="admin")
class JoinTokens(Call, at="join-tokens/"):
    """List join tokens and the machines that enrolled with them

    Including expired and revoked ones, and without their secrets, which are not stored.
    """

    @describe(
        "create_join_token",
        needs="admin",
        location="join-tokens/{prefix}/",
        keyless=SHOWN_ONCE,
        body=entrance.JoinTokenRequestSerializer,
        problems=("not-found",),
    )
    def post(self) -> JoinToken:
        """Create a join token for new agents

        A token for a set rejects machines that state another set, and confines those it admits to its set. Its secret
        is shown only in this answer.
        """
        token, plain = entrance.create_join_token(self.wanted, actor=self.actor, now=self.now)
        return from_row(JoinToken, token, token=plain, set=token.set_name)
