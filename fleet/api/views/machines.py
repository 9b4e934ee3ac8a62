"""Machines, join tokens, inventories as `az` prints them, and the blind spots of the fleet."""

from collections.abc import Mapping
from datetime import timedelta
from typing import IO, Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.parsers import BaseParser

from fleet.api.calls import Call, filtered
from fleet.api.problems import Problem
from fleet.api.repeats import ONE_SIGHT
from fleet.api.schema import describe, detail_call, filters_of, list_call
from fleet.api.shapes.answers import JoinToken
from fleet.api.shapes.requests import (
    AdmissionsRequestSerializer,
    JoinTokenRequestSerializer,
    MoveRequestSerializer,
)
from fleet.domain.machines.inventory import read_inventory, read_json
from fleet.operations.machines import admissions, entrance, keys
from fleet.operations.machines.inventory import Imported, import_inventory
from fleet.operations.sets.changes import move_machine
from fleet.projections import blind_spots, machines
from fleet.projections.filters import AdmissionFilter, BlindSpotFilter, MachineFilter
from fleet.projections.pages import Page

MAX_INVENTORY_BYTES = 32 * 1024 * 1024
COMPLETE = OpenApiParameter(
    "complete",
    bool,
    description="`true`: it lists all machines of the subscriptions and scale sets that occur in it: forget others.",
)


class Printed(BaseParser):
    """What `az` prints: JSON of any shape. Raises Problem and Refused."""

    media_type = "application/json"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        raw = stream.read(MAX_INVENTORY_BYTES + 1)
        if len(raw) > MAX_INVENTORY_BYTES:
            raise Problem("too-large", f"An inventory may hold {MAX_INVENTORY_BYTES // 1024**2} MiB at once.")
        return read_json(raw)


class Inventory(Call):
    parser_classes = [Printed]

    @describe(
        "import_inventory",
        needs="admin",
        body={"application/json": OpenApiTypes.ANY},
        problems=("too-large",),
        parameters=[COMPLETE],
    )
    def post(self) -> Imported:
        """Take in what `az` prints about machines and their sets

        The body is the output of `az vm list`, `az vm availability-set list`, `az vmss list-instances` or `az vmss
        list`, as it is, or several of them in one list.
        """
        complete = self.request.query_params.get("complete", "").lower() == "true"
        inventory = read_inventory(self.request.data)
        return import_inventory(inventory=inventory, actor=self.actor, complete=complete, now=self.now)


class BlindSpots(Call):
    @describe("list_blind_spots", parameters=filters_of(BlindSpotFilter))
    def get(self) -> Page[blind_spots.BlindSpotRow]:
        """Where Drydock would not see what Azure announces

        The most dangerous first.
        """
        filters = BlindSpotFilter(self.request.query_params)
        filtered(self.request, filters)
        return blind_spots.page(now=self.now, **filters.asked_for(), **self.place)


# Machines and join tokens.

NO_TOKEN = ("not-found", "No join token begins like this.")


@list_call("list_machines", machines.listing, MachineFilter, "machines", orders=("resource_name", "enrolled_at"))
class Machines(Call):
    """Machines by name

    Each with its set, its place in the data centre, how present its agent is, and what is wrong with it.
    """


@detail_call("get_machine", machines.detail)
class Machine(Call):
    """One machine

    How present its agent is, what is wrong with it, and the open events that name it or its set.
    """


class RevokeMachine(Call):
    @describe("revoke_machine", needs="admin")
    def post(self, machine_id: int) -> machines.MachineDetail | None:
        """End a machine's credential at once

        Its agent is refused from now on, and asks to enrol again; that takes an admission by an admin. What it
        reported stays.
        """
        keys.revoke(machine_id=machine_id, actor=self.actor, now=self.now)
        return machines.detail(machine_id=machine_id, now=self.now)


class MoveMachine(Call):
    @describe("move_machine", needs="admin", body=MoveRequestSerializer)
    def post(self, machine_id: int) -> machines.MachineDetail | None:
        """Move a machine into a set and confine it there, or lift that

        Whatever else is stated of its set does not count then. Open events of both sets are judged anew.
        """
        move_machine(machine_id=machine_id, set_id=self.wanted["set"], actor=self.commented, now=self.now)
        return machines.detail(machine_id=machine_id, now=self.now)


@list_call("list_admissions", machines.page_of_waiting, AdmissionFilter, "rows")
class Admissions(Call):
    """Who waits for admission

    Who enrols as a known machine without its credential, as a revoked one, or as a stranger. The newest first.
    """


class Admit(Call):
    @describe("admit_machines", needs="admin", body=AdmissionsRequestSerializer, problems=("not-found",))
    def post(self) -> tuple[machines.AdmissionRow, ...]:
        """Admit some who wait, all or none

        Each gets its credential when it asks again; the one before ends then. Answers who still waits.
        """
        admissions.admit(ids=self.wanted["ids"], actor=self.commented, now=self.now)
        return machines.waiting()


class RefuseAdmission(Call):
    @describe("refuse_admissions", needs="admin", body=AdmissionsRequestSerializer, problems=("not-found",))
    def post(self) -> tuple[machines.AdmissionRow, ...]:
        """Refuse some who wait, all or none

        They may ask again. Answers who still waits.
        """
        admissions.refuse(ids=self.wanted["ids"], actor=self.commented, now=self.now)
        return machines.waiting()


@detail_call("get_join_token", machines.join_token, needs="admin", missing=NO_TOKEN)
class OneJoinToken(Call):
    """One join token

    Without its secret: how long it admits machines, and who enrolled by it.
    """

    @describe("end_join_token", needs="admin")
    def delete(self, prefix: str) -> None:
        """Admit nobody more by a join token

        Machines that enrolled by it stay. Tokens are named by their `prefix`.
        """
        entrance.end_join_token(prefix=prefix, actor=self.actor, now=self.now)


@list_call("list_join_tokens", machines.page_of_join_tokens, needs="admin")
class JoinTokens(Call):
    """Join tokens, and who enrolled by them

    Those that are over, too. The secret itself is not kept and cannot be shown.
    """

    @describe(
        "create_join_token",
        needs="admin",
        location="join-tokens/{prefix}/",
        keyless=ONE_SIGHT,
        body=JoinTokenRequestSerializer,
        problems=("not-found",),
    )
    def post(self) -> JoinToken:
        """A token that lets new agents enrol

        A set confines: who states another one when it enrols is refused, and stays there afterwards.
        """
        token, plain = entrance.create_join_token(
            comment=self.wanted["comment"],
            expires_in=timedelta(seconds=self.wanted["expires_in_seconds"]),
            set_name=self.wanted["set"],
            set_id=self.wanted["set_id"],
            max_uses=self.wanted["max_uses"],
            actor=self.actor,
            now=self.now,
        )
        return JoinToken(
            token=plain,
            prefix=token.prefix,
            comment=token.comment,
            set=token.set_name,
            created_at=token.created_at,
            expires_at=token.expires_at,
        )
