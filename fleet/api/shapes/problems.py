"""The shapes of problem documents: one for each type, so that `type` tells a client which further fields there are."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from fleet.domain.approvals.guards import Need
from fleet.wording.problems import PROBLEMS

TEXT = {"type": "string"}
ID = {"type": "integer", "minimum": 1}
GUARD = {
    "type": "object",
    "properties": {
        "code": {**TEXT, "description": "What `override` names."},
        "sentence": {**TEXT, "description": "What speaks against it."},
        "needs": {**TEXT, "enum": [need.value for need in Need], "description": "What it asks for."},
        "overridable": {"type": "boolean", "description": "An approver may override it though it blocks."},
    },
    "required": ["code", "sentence", "needs", "overridable"],
}
BY = {**TEXT, "description": "Who."}
AT = {**TEXT, "format": "date-time", "description": "When."}
GUARDS = {"type": "array", "items": GUARD, "description": "What stands in the way."}
SHOWN = {
    "type": "object",
    "additionalProperties": TEXT,
    "description": "Digests of what these guards name, by code, for `shown` of a decision.",
}
VERSION = {"type": "integer", "minimum": 0, "description": "The event's version now."}
EVENTS = {
    "type": "array",
    "description": "Of a wave: what stands against each of its events.",
    "items": {
        "type": "object",
        "properties": {
            "event_id": TEXT,
            "code": {**TEXT, "description": "A type of problem."},
            "sentence": TEXT,
            "guards": GUARDS,
            "shown": SHOWN,
        },
        "required": ["event_id", "code", "sentence"],
    },
}
ERRORS = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "properties": {
            "field": {**TEXT, "description": "A field, parameter or header; empty for the request as a whole."},
            "message": {**TEXT, "description": "What is wrong with it."},
        },
        "required": ["field", "message"],
    },
}

# Further fields by type. Those of ALWAYS are there each time; the others where the call can tell them.
DECISION = {"guards": GUARDS, "shown": SHOWN, "version": VERSION, "events": EVENTS}
MORE: dict[str, dict[str, Any]] = {
    "precondition-failed": {"version": {**TEXT, "description": "The version now, as in its `ETag`."}},
    "already-decided": {
        "by": BY,
        "at": {**AT, "type": ["string", "null"]},
        "approval": {**ID, "type": ["integer", "null"], "description": "The id of the approval that exists."},
        **DECISION,
    },
    "guarded": DECISION,
    "too-late": DECISION,
    "version-changed": DECISION,
    "stopped": DECISION,
    "already-claimed": {"by": BY, "at": AT, "comment": {**TEXT, "description": "What they are about to do."}},
    "already-held": {"by": BY, "at": AT, "reason": {**TEXT, "description": "Why."}},
    "count-changed": {"count": {"type": "integer", "minimum": 0, "description": "How many events it is now."}},
    "real-event-open": {"event": {**TEXT, "description": "Its EventId."}},
    "drill-open": {"drill": ID},
    "wave-running": {"wave": ID},
    "set-exists": {"set": ID},
    "validation": {"errors": ERRORS},
}
ALWAYS = (
    "already-claimed",
    "already-held",
    "count-changed",
    "real-event-open",
    "drill-open",
    "set-exists",
    "validation",
)


def name_of(kind: str) -> str:
    """The name of a type's shape: `already-decided` is an `AlreadyDecidedProblem`."""
    return "".join(part.capitalize() for part in kind.split("-")) + "Problem"


def shape_of(kind: str) -> dict[str, Any]:
    """The JSON schema of the problem documents of this type."""
    known = PROBLEMS[kind]
    more = MORE.get(kind, {})
    return {
        "type": "object",
        "description": f"{known.title}. {known.advice}",
        "properties": {
            "type": {"const": kind, "type": "string"},
            "title": {**TEXT, "description": "What it is."},
            "status": {"const": known.status, "type": "integer"},
            "detail": {**TEXT, "description": "What is wrong in this case, and what to do about it."},
            **more,
        },
        "required": ["type", "title", "status", "detail", *(more if kind in ALWAYS else ())],
    }


def answer_of(kinds: Collection[str]) -> dict[str, Any]:
    """The JSON schema of an answer that is a problem of one of these types."""
    refs = [f"#/components/schemas/{name_of(kind)}" for kind in kinds]
    if len(refs) == 1:
        return {"$ref": refs[0]}
    mapping = dict(zip(kinds, refs, strict=True))
    return {
        "oneOf": [{"$ref": ref} for ref in refs],
        "discriminator": {"propertyName": "type", "mapping": mapping},
    }


def by_status(kinds: Collection[str]) -> dict[int, list[str]]:
    """These types by HTTP status, each in the order of the list of all."""
    statuses = sorted({PROBLEMS[kind].status for kind in kinds})
    return {
        status: [kind for kind, known in PROBLEMS.items() if kind in kinds and known.status == status]
        for status in statuses
    }


def told(kinds: Iterable[str]) -> str:
    """What such an answer says, in words."""
    return "; ".join(f"`{kind}`: {PROBLEMS[kind].title}" for kind in kinds) + "."
