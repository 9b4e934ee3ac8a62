"""Inventories as `az` prints them, and the blind spots of the fleet."""

from collections.abc import Mapping
from typing import IO, Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.authentication import person_of, token_name
from fleet.api.calls import Call, problem_answers
from fleet.api.problems import Problem
from fleet.api.shapes.inventory import BlindSpotSerializer, ImportedSerializer
from fleet.api.shapes.pages import page_of
from fleet.domain.inventory import InventoryError, read_inventory, read_json
from fleet.operations.inventory import import_inventory
from fleet.projections import blind_spots

MAX_INVENTORY_BYTES = 32 * 1024 * 1024
COMPLETE = OpenApiParameter(
    "complete",
    bool,
    description="`true`: it lists all machines of the subscriptions and scale sets that occur in it: forget others.",
)


class Printed(BaseParser):
    """What `az` prints: JSON of any shape. Raises Problem."""

    media_type = "application/json"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        raw = stream.read(MAX_INVENTORY_BYTES + 1)
        if len(raw) > MAX_INVENTORY_BYTES:
            raise Problem("too-large", f"An inventory may hold {MAX_INVENTORY_BYTES // 1024**2} MiB at once.")
        try:
            return read_json(raw)
        except InventoryError as error:
            raise wrong(str(error)) from error


class Inventory(Call):
    needs = {"POST": "admin"}
    parser_classes = [Printed]
    knows = frozenset({"complete"})

    @extend_schema(
        operation_id="import_inventory",
        summary="Take in what `az` prints about machines and their sets",
        description=(
            "The body is the output of `az vm list`, `az vm availability-set list`, `az vmss list-instances` or"
            " `az vmss list`, as it is, or several of them in one list."
        ),
        parameters=[COMPLETE],
        request={"application/json": OpenApiTypes.ANY},
        responses={200: ImportedSerializer, **problem_answers(413, 422)},
    )
    def post(self, request: Request) -> Response:
        complete = request.query_params.get("complete", "false").lower()
        if complete not in ("true", "false"):
            raise Problem("validation", errors=[{"field": "complete", "message": "Say `true` or `false`."}])
        try:
            inventory = read_inventory(request.data)
        except InventoryError as error:
            raise wrong(str(error)) from error
        found = import_inventory(
            inventory=inventory,
            by=person_of(request),
            via="api",
            token_name=token_name(request),
            complete=complete == "true",
            now=self.now,
        )
        return self.shown(ImportedSerializer, found)


class BlindSpots(Call):
    @extend_schema(
        operation_id="list_blind_spots",
        summary="Where Drydock would not see what Azure announces",
        description="All of them at once, the most dangerous first.",
        responses={200: page_of(BlindSpotSerializer), **problem_answers()},
    )
    def get(self, request: Request) -> Response:
        found = blind_spots.overview(now=self.now)
        rows = BlindSpotSerializer(found.spots, many=True, context={"now": self.now}).data
        return Response({"next": None, "previous": None, "results": rows})


def wrong(sentence: str) -> Problem:
    return Problem("validation", sentence, errors=[{"field": "", "message": sentence}])
