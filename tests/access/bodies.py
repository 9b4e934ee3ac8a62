"""What is sent with each call that writes, so that only rights stand between a caller and what it does; and where a
part of an address stands for something else than in other addresses.
"""

import json
from pathlib import Path
from typing import Any

from tests.factories import EVENT

RULE = {"name": "Short freezes", "reason": "No user notices.", "action": "hold", "event_types": ["Freeze"]}
WINDOW = {"name": "Sale", "reason": "The shop is full.", "weekdays": [4], "from_time": "18:00", "time_zone": "UTC"}
SAMPLES = Path(__file__).parents[1] / "samples"
HOOK = {"name": "another", "kind": "webhook", "url": "https://hooks.example.org/1"}
KEYS = {"endpoint": "https://push.example.org/1", "p256dh": "B" * 87, "auth": "A" * 22}

# By route, or by method and route: for which name of an address another of `World.values` is taken, by its name there.
INSTEAD: dict[str, dict[str, str]] = {
    "sets/<int:set_id>/name/": {"set_id": "stray_id"},
    "sets/<int:set_id>/merge/": {"set_id": "stray_id"},
    "sets/<int:set_id>/drill/": {"set_id": "idle_id"},
    "first-steps/sets/<int:set_id>/name/": {"set_id": "stray_id"},
    "people/<str:username>/service/": {"username": "service"},
    "api/v1/services/<path:service>/": {"service": "name"},
    "people/<str:username>/tokens/": {"username": "service"},
    "api/v1/service-accounts/<str:username>/": {"username": "service"},
    "api/v1/service-accounts/<str:username>/tokens/": {"username": "service"},
    "join-tokens/<str:prefix>/end/": {"prefix": "join"},
    "you/calendars/<str:prefix>/end/": {"prefix": "feed"},
    "approvals/<int:approval_id>/consent/": {"approval_id": "consent_id"},
    "events/<event:event_id>/give-back/": {"event_id": "claimed_id"},
    "events/<event:event_id>/lift/": {"event_id": "held_id"},
    "channels/<int:channel_id>/delete/": {"channel_id": "unused_id"},
    "channels/<int:channel_id>/switch/": {"channel_id": "unused_id"},
    "DELETE api/v1/channels/<int:channel_id>/": {"channel_id": "unused_id"},
    "GET api/v1/events/<str:event_id>/claims/": {"event_id": "claimed_id"},
    "GET api/v1/events/<str:event_id>/holds/": {"event_id": "held_id"},
    "DELETE api/v1/events/<str:event_id>/claims/": {"event_id": "claimed_id"},
    "DELETE api/v1/events/<str:event_id>/holds/": {"event_id": "held_id"},
    "api/v1/sets/<int:set_id>/merge/": {"set_id": "stray_id"},
    "api/v1/join-tokens/<str:prefix>/": {"prefix": "join"},
    "api/v1/approvals/<int:approval_id>/consents/": {"approval_id": "consent_id"},
}

# By method and route: what is sent. Texts in braces stand for values of `World`.
SERVICE = {"username": "deploy-bot", "group": "viewer", "owner": "grace", "purpose": "deploys"}
JSON: dict[tuple[str, str], Any] = {
    ("PATCH", "sets/<int:set_id>/"): {"service": "shop"},
    ("POST", "sets/<int:set_id>/admissions/"): {"until": "{at}"},
    ("POST", "sets/<int:set_id>/merge/"): {"into": "{set_id}"},
    ("POST", "inventory/"): json.loads((SAMPLES / "az_vm_list.json").read_text(encoding="utf-8")),
    ("POST", "machines/<int:machine_id>/move/"): {"set": "{set_id}", "comment": "rebuilt"},
    ("POST", "machines/decommission/"): {"machines": ["{machine_id}"], "comment": "scaled in"},
    ("POST", "admissions/admit/"): {"ids": ["{admission}"]},
    ("POST", "admissions/refuse/"): {"ids": ["{admission}"]},
    ("POST", "join-tokens/"): {"comment": "rack 7"},
    ("POST", "events/<str:event_id>/claims/"): {"comment": "mine"},
    ("POST", "events/<str:event_id>/holds/"): {"reason": "let it run"},
    ("POST", "events/<str:event_id>/notes/"): {"comment": "checked"},
    ("POST", "events/<str:event_id>/silence/"): {"until": "{at}"},
    ("POST", "events/<str:event_id>/approvals/"): {"comment": "go"},
    ("PATCH", "services/<path:service>/"): {"runbook": "https://wiki.example.org/shop"},
    ("POST", "handovers/"): {"comment": "all quiet"},
    ("DELETE", "approvals/<int:approval_id>/"): {"comment": "no"},
    ("POST", "bulk/approvals/"): {"events": [EVENT], "comment": "go"},
    ("POST", "bulk/claims/"): {"events": [EVENT], "comment": "mine"},
    ("POST", "stop/"): {"comment": "it runs wild"},
    ("POST", "stop/lift/"): {"comment": "mended"},
    ("POST", "rules/"): RULE,
    ("PATCH", "rules/<int:rule_id>/"): {"enabled": True},
    ("POST", "rules/dry-run/"): RULE,
    ("POST", "no-approval-windows/"): WINDOW,
    ("POST", "drills/"): {"set": "{idle_id}", "comment": "spring"},
    ("DELETE", "drills/<int:drill_id>/"): {"comment": "enough"},
    ("POST", "waves/"): {"events": "{wave_events}", "comment": "patches"},
    ("DELETE", "waves/<int:wave_id>/"): {"comment": "enough"},
    ("POST", "channels/"): HOOK,
    ("PATCH", "channels/<int:channel_id>/"): {"url": "https://hooks.example.org/2"},
    ("POST", "routes/"): {"name": "more", "channel": "{channel_id}"},
    ("PATCH", "routes/<int:route_id>/"): {"service": "shop"},
    ("POST", "routes/dry-run/"): {"name": "more"},
    ("PATCH", "me/"): {"time_zone": "Europe/Berlin"},
    ("POST", "tokens/"): {"name": "deploys", "scopes": ["read"]},
    ("POST", "people/"): {"username": "nina", "group": "viewer"},
    ("PATCH", "people/<str:username>/"): {"group": "viewer"},
    ("POST", "service-accounts/"): SERVICE,
    ("PATCH", "service-accounts/<str:username>/"): {"purpose": "releases"},
    ("POST", "service-accounts/<str:username>/tokens/"): {"name": "ci", "scopes": ["read"]},
    ("POST", "sign-on/mapping/"): {"value": "Drydock.Viewer", "group": "viewer"},
    ("PATCH", "sign-on/mapping/<int:grant_id>/"): {"group": "viewer"},
    ("POST", "sign-on/accounts/"): {"username": "gina", "subject": "8a2d"},
}

FORMS: dict[str, dict[str, Any]] = {
    "views/save/": {"name": "Mine", "page": "sets", "query": "q=web"},
    "sets/<int:set_id>/name/": {"name": "jetty", "kind": "availability_set"},
    "sets/<int:set_id>/admissions/": {"hours": "1", "comment": "rebuilt"},
    "sets/<int:set_id>/second-person/": {"second_person": "on"},
    "sets/<int:set_id>/step-up/": {"step_up": "on"},
    "sets/<int:set_id>/spares/": {"exempt_service_accounts": "on"},
    "sets/<int:set_id>/needs/": {"min_live": "5"},
    "sets/<int:set_id>/merge/": {"into": "{set_id}"},
    "sets/<int:set_id>/drill/": {"type": "Freeze", "notice_seconds": "120", "duration_seconds": "10"},
    "drills/<int:drill_id>/stop/": {"comment": "enough"},
    "machines/<int:machine_id>/move/": {"set": "{set_id}", "comment": "rebuilt"},
    "admissions/decide/": {"ids": "{admission}", "decision": "admit"},
    "join-tokens/make/": {"comment": "rack 7", "expires_in_seconds": "86400"},
    "inventory/take/": {"pasted": "[]", "what": "import"},
    "first-steps/entrance/": {"policy": "admit"},
    "first-steps/sets/<int:set_id>/name/": {"name": "jetty", "kind": "availability_set"},
    "events/<event:event_id>/approve/": {"comment": "go"},
    "events/<event:event_id>/claim/": {"comment": "mine"},
    "events/<event:event_id>/hold/": {"reason": "let it run"},
    "events/<event:event_id>/note/": {"note": "checked"},
    "events/<event:event_id>/silence/": {"hours": "1"},
    "sets/<int:set_id>/runbook/": {"runbook": "https://wiki.example.org/web"},
    "service-runbook/": {"name": "shop", "runbook": "https://wiki.example.org/shop"},
    "handover/send/": {"since": "2026-01-01T00:00:00Z", "until": "2026-01-01T06:00:00Z"},
    "you/alerts/": {"alerts": "on"},
    "bulk/": {"do": "claim", "event": f"{EVENT}:{{version}}", "comment": "mine"},
    "bulk/undo/": {"approval": "{approval_id}"},
    "waves/begin/": {"events": "{wave_events}", "comment": "patches"},
    "stop/all/": {"comment": "it runs wild"},
    "stop/lift/": {"comment": "mended"},
    "rules/new/": {"name": "Short freezes", "reason": "short", "action": "hold", "event_types": "Freeze"},
    "rules/<int:rule_id>/": {"name": "Pauses", "reason": "so short", "action": "hold", "event_types": "Freeze"},
    "rules/<int:rule_id>/switch/": {"enabled": "on"},
    "rules/<int:rule_id>/move/": {"to": "up"},
    "no-approval-windows/": {"name": "Sale 2", "reason": "full", "weekdays": "4", "from_time": "18:00"},
    "channels/new/<slug:kind>/": {"name": "another", "url": "https://hooks.example.org/1"},
    "channels/<int:channel_id>/": {"name": "hook", "url": "https://hooks.example.org/2"},
    "routes/new/": {"name": "more"},
    "routes/<int:route_id>/": {"name": "All of them"},
    "handover/read/": {"until": "2026-01-01T06:00:00Z"},
    "you/settings/": {"time_zone": "Europe/Berlin"},
    "you/tokens/": {"name": "deploys", "scopes": "read", "expires_in_seconds": "604800"},
    "you/browser/": {"name": "a browser", **KEYS},
    "you/calendars/": {"name": "Web"},
    "people/new/": {"username": "nina", "group": "viewer"},
    "people/<str:username>/change/": {"group": "viewer", "is_active": "on"},
    "people/<str:username>/forget/now/": {"confirmed": "{username}"},
    "people/service/": SERVICE,
    "people/<str:username>/service/": {"owner": "grace", "purpose": "releases"},
    "people/<str:username>/tokens/": {"name": "ci", "scopes": "read", "expires_in_seconds": "604800"},
    "sign-on/try/": {"claims": ""},
    "sign-on/lines/": {"value": "Drydock.Viewer", "group": "viewer"},
    "sign-on/lines/<int:grant_id>/": {"group": "viewer"},
    "sign-on/links/": {"username": "gina", "subject": "8a2d"},
}


def sent(method: str, route: str, values: dict[str, Any]) -> Any:
    """The body of one call: an object for JSON below `api/`, the fields of a form elsewhere."""
    if route.startswith("api/"):
        return _filled(JSON.get((method, route.removeprefix("api/v1/")), {}), values)
    return _filled(FORMS.get(route, {}), values)


def _filled(node: Any, values: dict[str, Any]) -> Any:
    if isinstance(node, dict):
        return {name: _filled(inner, values) for name, inner in node.items()}
    if isinstance(node, list):
        return [_filled(inner, values) for inner in node]
    if not isinstance(node, str) or "{" not in node:
        return node
    alone = node[1:-1]
    return values[alone] if alone in values else node.format(**values)
