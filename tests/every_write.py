"""Every API call that writes, with its body: called one after the other, each of them changes something.

The caller sets `fleet.notifications.api.TEST_SECONDS` to 0, since no receiver answers the channel test here.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.test import override_settings
from drydock_agent import wire

from fleet.accounts.models import SignOn, SignOnGrant
from fleet.models import Admission, Approval, Drill, Rule
from fleet.notifications.models import Channel, Route
from fleet.operations.machines import enrolment
from tests import factories
from tests.factories import EVENT, Fleet
from tests.messages import sent
from tests.people.signed_in import a_session

OTHER = "0A1B2C3D-0000-4000-8000-00000000000A"
SAMPLES = Path(__file__).parent / "samples"
RULE = {"name": "Short freezes", "reason": "No user notices.", "action": "hold", "event_types": ["Freeze"]}
WINDOW = {"name": "Sale", "reason": "The shop is full.", "weekdays": [4], "from_time": "18:00", "time_zone": "UTC"}

IN_PERSON = "ada in person"
SIGNED_IN = f" as {IN_PERSON}"
Step = tuple[str, str, Any]


def busy_fleet() -> Fleet:
    """Build a set of six with an event, a set of one with another, one without, and a machine with no stated set."""
    found = Fleet(now=datetime.now(UTC))
    factories.announced(found)
    found.enrol("w1", availability_set="standalone:w1")
    found.enrol("d1", availability_set="dock")
    found.say("d1")
    found.enrol("stray", availability_set="")
    due = found.now + timedelta(minutes=15)
    found.say("w1", factories.listing(OTHER, resources=("w1",), not_before=due))
    Rule.objects.all().delete()
    return found


def api_steps(fleet: Fleet) -> Iterator[Step]:
    """Every writing call as (method, route, address and body); made one by one, for some need what others made.

    `POST as NAME`: who makes it where that is not the token of ada, who is an administrator; some only people make.
    """
    web, stray = factories.the_set(), fleet.agents["stray"].machine.availability_set_id
    at = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()
    event = f"events/{EVENT}/"

    def newest(model: Any) -> int:
        return int(model.objects.order_by("-pk").values_list("pk", flat=True)[0])

    yield "PATCH", "sets/<int:set_id>/", (f"sets/{web.pk}/", {"service": "shop"})
    yield "POST", "sets/<int:set_id>/admissions/", (f"sets/{web.pk}/admissions/", {"until": at})
    yield "POST", "sets/<int:set_id>/merge/", (f"sets/{stray}/merge/", {"into": web.pk})
    yield "POST", "inventory/", ("inventory/", json.loads((SAMPLES / "az_vm_list.json").read_text()))
    yield "POST", "machines/<int:machine_id>/revoke/", (f"machines/{fleet.agents['vm6'].machine.pk}/revoke/", None)
    moved = f"machines/{fleet.agents['vm6'].machine.pk}/move/"
    yield "POST", "machines/<int:machine_id>/move/", (moved, {"set": web.pk, "comment": "rebuilt"})
    for name in ("vm1", "vm2"):
        asking = {"join_token": fleet.join_token, "machine_id": fleet.agents[name].machine.vm_id, "ask": name}
        enrolment.enrol(request=wire.EnrolRequest(**asking), now=fleet.now)
    one, two = Admission.objects.order_by("pk").values_list("pk", flat=True)
    yield "POST", "admissions/admit/", ("admissions/admit/", {"ids": [one]})
    yield "POST", "admissions/refuse/", ("admissions/refuse/", {"ids": [two]})
    yield "POST", "join-tokens/", ("join-tokens/", {"comment": "rack 7"})
    yield "DELETE", "join-tokens/<str:prefix>/", ("join-tokens/{made}/", None)
    yield "POST", "events/<str:event_id>/claims/", (f"{event}claims/", {"comment": "mine"})
    yield "DELETE", "events/<str:event_id>/claims/", (f"{event}claims/", None)
    yield "POST", "bulk/claims/", ("bulk/claims/", {"events": [EVENT], "comment": "mine again"})
    yield "POST", "events/<str:event_id>/holds/", (f"{event}holds/", {"reason": "let it run"})
    yield "DELETE", "events/<str:event_id>/holds/", (f"{event}holds/", None)
    yield "POST", "events/<str:event_id>/approvals/", (f"{event}approvals/", {"comment": "later", "when": at})
    yield "DELETE", "approvals/<int:approval_id>/", (f"approvals/{newest(Approval)}/", {"comment": "no"})
    yield "PATCH", "sets/<int:set_id>/", (f"sets/{web.pk}/", {"second_person": True})
    yield "POST", "events/<str:event_id>/approvals/", (f"{event}approvals/", {"comment": "with two"})
    yield "POST as anna", "approvals/<int:approval_id>/consents/", (f"approvals/{newest(Approval)}/consents/", {})
    yield "POST", "bulk/approvals/", ("bulk/approvals/", {"events": [OTHER], "comment": "and this"})
    yield "POST", "drills/", ("drills/", {"set": factories.the_set("dock").pk, "comment": "spring"})
    yield "DELETE", "drills/<int:drill_id>/", (f"drills/{newest(Drill)}/", {"comment": "enough"})
    yield "POST", "rules/", ("rules/", RULE)
    yield "PATCH", "rules/<int:rule_id>/", (f"rules/{newest(Rule)}/", {"enabled": True})
    yield "DELETE", "rules/<int:rule_id>/", (f"rules/{newest(Rule)}/", None)
    yield "POST", "no-approval-windows/", ("no-approval-windows/", WINDOW)
    yield "DELETE", "no-approval-windows/<int:window_id>/", ("no-approval-windows/{made}/", None)
    hook = {"name": "hook", "kind": "webhook", "url": "https://hooks.example.org/1"}
    yield "POST", "channels/", ("channels/", hook)
    channel = newest(Channel)
    yield "PATCH", "channels/<int:channel_id>/", (f"channels/{channel}/", {"url": "https://hooks.example.org/2"})
    yield "POST", "channels/<int:channel_id>/rotate/", (f"channels/{channel}/rotate/", None)
    yield "POST", "channels/<int:channel_id>/test/", (f"channels/{channel}/test/", None)
    yield "POST", "routes/", ("routes/", {"name": "all", "channel": channel})
    yield "PATCH", "routes/<int:route_id>/", (f"routes/{newest(Route)}/", {"service": "shop"})
    told = sent.delivered(Channel.objects.get(), fleet.now)
    yield "POST", "messages/<int:message_id>/redeliver/", (f"messages/{told.pk}/redeliver/", None)
    yield "DELETE", "routes/<int:route_id>/", (f"routes/{newest(Route)}/", None)
    yield "DELETE", "channels/<int:channel_id>/", (f"channels/{channel}/", None)
    yield "PATCH", "me/", ("me/", {"time_zone": "Europe/Berlin"})
    yield "POST", "tokens/", ("tokens/", {"name": "deploys", "scopes": ["read"]})
    yield "DELETE", "tokens/<str:prefix>/", ("tokens/{made}/", None)
    yield f"POST{SIGNED_IN}", "people/", ("people/", {"username": "nina", "group": "viewer"})
    yield f"PATCH{SIGNED_IN}", "people/<str:username>/", ("people/nina/", {"active": False})
    yield f"POST{SIGNED_IN}", "people/<str:username>/password/", ("people/nina/password/", None)
    service = {"username": "deploy-bot", "group": "operator", "owner": "nora", "purpose": "deploys"}
    factories.viewer("nora")
    yield f"POST{SIGNED_IN}", "service-accounts/", ("service-accounts/", service)
    yield (
        f"PATCH{SIGNED_IN}",
        "service-accounts/<str:username>/",
        ("service-accounts/deploy-bot/", {"purpose": "releases"}),
    )
    token = {"name": "ci", "scopes": ["read"]}
    yield (
        f"POST{SIGNED_IN}",
        "service-accounts/<str:username>/tokens/",
        ("service-accounts/deploy-bot/tokens/", token),
    )
    nina = User.objects.get(username="nina")
    yield "DELETE", "sessions/<int:session_id>/", (f"sessions/{a_session(nina).pk}/", None)
    a_session(nina)
    yield "POST", "sessions/end/", ("sessions/end/", {"person": "nina"})
    line = {"value": "Drydock.Operator", "group": "operator"}
    yield f"POST{SIGNED_IN}", "sign-on/mapping/", ("sign-on/mapping/", line)
    grant = newest(SignOnGrant)
    yield (
        f"PATCH{SIGNED_IN}",
        "sign-on/mapping/<int:grant_id>/",
        (f"sign-on/mapping/{grant}/", {"group": "viewer"}),
    )
    yield f"DELETE{SIGNED_IN}", "sign-on/mapping/<int:grant_id>/", (f"sign-on/mapping/{grant}/", None)
    with override_settings(OIDC_ISSUER="https://login.example"):
        yield (
            f"POST{SIGNED_IN}",
            "sign-on/accounts/",
            ("sign-on/accounts/", {"username": "nina", "subject": "7f1c"}),
        )
        account = newest(SignOn)
        yield f"DELETE{SIGNED_IN}", "sign-on/accounts/<int:sign_on_id>/", (f"sign-on/accounts/{account}/", None)
    yield "POST as anna", "stop/", ("stop/", {"comment": "it runs wild"})
    yield "POST", "stop/lift/", ("stop/lift/", {"comment": "mended"})
