"""Availability sets: reading them, naming a provisional one, joining two that are one."""

from fleet.api.calls import Call, filtered
from fleet.api.describe import describe, filters_of, ordering
from fleet.api.places import CHANGED_SINCE, PLACES
from fleet.api.shapes.machines import SetShape
from fleet.api.shapes.requests import AdmissionRuleSerializer, MergeSetSerializer, NameSetSerializer
from fleet.operations.machines import admissions
from fleet.operations.sets import names
from fleet.projections import sets
from fleet.projections.filters import SetFilter
from fleet.projections.pages import Page

# Of twenty machines each they are less than 100 kB.
USUAL = 6
UNKNOWN = ("not-found", "No set has this id.")
SET_FILTERS = filters_of(
    SetFilter,
    {
        **PLACES,
        "machine": "The id of a machine: the set that it is of; may be repeated.",
        "machine_name": "The resource name of a machine, in any case: the sets that have one; may be repeated.",
        "presence": "Sets with a machine that is `live`, `late`, `silent`, `gone` or `expected`; may be repeated.",
        "changed_since": CHANGED_SINCE,
        "kind": "One kind of set.",
        "q": "Part of a name or of a resource group.",
        "machines": "`false`: machines as numbers only; the lists of them stay empty.",
    },
)

IN_NUMBERS = next(each for each in SET_FILTERS if each.name == "machines")


class Sets(Call):
    @describe(
        "list_sets",
        "Availability sets by name",
        (
            "Each with its machines, how present they are, and its open events. Sets that were merged into"
            " another are not listed. Machines stand in their set, so a page holds few sets if nothing is said;"
            " with `machines=false` fifty fit into 100 kB."
        ),
        page=SetShape,
        page_size=USUAL,
        parameters=[*SET_FILTERS, ordering("name", "service")],
    )
    def get(self) -> Page[sets.SetRow]:
        filters = SetFilter(self.request.query_params, now=self.now)
        found = sets.listing(now=self.now, sets=filtered(self.request, filters), **self.place)
        return found.map(lambda rows: [*map(sets.in_numbers, rows)]) if filters.in_numbers else found


class OneSet(Call):
    def one(self, set_id: int) -> sets.SetRow | None:
        found = sets.detail(set_id=set_id, now=self.now)
        return found.set if found else None


class Set(OneSet):
    @describe(
        "get_set",
        "One availability set with its machines and open events",
        (
            "The id of a set that was merged answers with the set that remains. Of a set of more than 500 machines the"
            " first 500 by name stand in it, and `left_out` counts the others: `GET machines/?set=` gives all of them."
        ),
        answer=SetShape,
        missing=UNKNOWN,
        parameters=[IN_NUMBERS],
    )
    def get(self, set_id: int) -> sets.SetRow | None:
        found = self.one(set_id)
        in_numbers = self.request.query_params.get("machines", "").lower() == "false"
        return sets.in_numbers(found) if found and in_numbers else found

    @describe(
        "name_set",
        "Name a provisional set, say its service, how many live machines it needs, or that it takes a second person",
        (
            "What is left out stays as it is. Only a provisional set takes a name; the others have that of Azure. What"
            " lowers a requirement takes the session of a person who has just proved who they are, and no token; where"
            " the set takes two persons it waits in `warnings` until another administrator wants the same."
        ),
        needs="admin",
        answer=SetShape,
        body=NameSetSerializer,
        missing=UNKNOWN,
        problems=("set-exists", "guarded"),
    )
    def patch(self, set_id: int) -> sets.SetRow | None:
        names.name_set(set_id=set_id, actor=self.actor, now=self.now, **self.wanted)
        return self.one(set_id)


class AdmissionRule(OneSet):
    @describe(
        "set_admission_rule",
        "Admit machines of this set that come back without their credential, for some time",
        "Only by a join token that confines to this set, and never a revoked machine or one that is live.",
        needs="admin",
        answer=SetShape,
        body=AdmissionRuleSerializer,
        missing=UNKNOWN,
    )
    def post(self, set_id: int) -> sets.SetRow | None:
        actor = self.actor.because(self.wanted["comment"])
        admissions.set_rule(set_id=set_id, until=self.wanted["until"], actor=actor, now=self.now)
        return self.one(set_id)


class MergeSet(OneSet):
    @describe(
        "merge_set",
        "Merge this set into another one: they are one at Azure",
        "Machines, events and inventory move; no entry is lost. It cannot be undone.",
        needs="admin",
        answer=SetShape,
        body=MergeSetSerializer,
        missing=UNKNOWN,
    )
    def post(self, set_id: int) -> sets.SetRow | None:
        names.merge_sets(set_id=set_id, into=self.wanted["into"], actor=self.actor, now=self.now)
        return self.one(self.wanted["into"])
