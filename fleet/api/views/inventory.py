"""Inventories as `az` prints them, and the blind spots of the fleet."""

from collections.abc import Mapping
from typing import IO, Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.parsers import BaseParser

from fleet.api.calls import Call, filtered
from fleet.api.describe import describe, filters_of
from fleet.api.places import MACHINES, PLACES
from fleet.api.problems import Problem, wrong
from fleet.api.shapes.inventory import BlindSpotShape, ImportedShape
from fleet.domain.machines.inventory import read_inventory, read_json
from fleet.operations.machines.inventory import Imported, import_inventory
from fleet.projections import blind_spots
from fleet.projections.filters import BlindSpotFilter
from fleet.projections.pages import Page

MAX_INVENTORY_BYTES = 32 * 1024 * 1024
COMPLETE = OpenApiParameter(
    "complete",
    bool,
    description="`true`: it lists all machines of the subscriptions and scale sets that occur in it: forget others.",
)
BLIND_SPOT_FILTERS = filters_of(BlindSpotFilter, {**PLACES, **MACHINES})


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
        "Take in what `az` prints about machines and their sets",
        "The body is the output of `az vm list`, `az vm availability-set list`, `az vmss list-instances` or"
        " `az vmss list`, as it is, or several of them in one list.",
        needs="admin",
        answer=ImportedShape,
        body={"application/json": OpenApiTypes.ANY},
        problems=("too-large",),
        parameters=[COMPLETE],
    )
    def post(self) -> Imported:
        complete = self.request.query_params.get("complete", "false").lower()
        if complete not in ("true", "false"):
            raise wrong("complete", "Say `true` or `false`.")
        inventory = read_inventory(self.request.data)
        return import_inventory(inventory=inventory, actor=self.actor, complete=complete == "true", now=self.now)


class BlindSpots(Call):
    @describe(
        "list_blind_spots",
        "Where Drydock would not see what Azure announces",
        "The most dangerous first.",
        page=BlindSpotShape,
        parameters=BLIND_SPOT_FILTERS,
    )
    def get(self) -> Page[blind_spots.BlindSpotRow]:
        found = BlindSpotFilter(self.request.query_params)
        filtered(self.request, found)
        return blind_spots.page(now=self.now, **found.asked_for(), **self.place)
