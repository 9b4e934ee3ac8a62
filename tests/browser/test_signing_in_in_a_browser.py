"""Sign-in in a browser: passkeys with an authenticator of Chromium, waiting machines, and re-authentication."""

from collections.abc import Callable

import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from drydock_agent import wire
from playwright.sync_api import expect

from fleet.models import Admission
from fleet.operations.machines import enrolment
from tests import factories
from tests.browser.conftest import PHONE, WIDE, OpenPage
from tests.factories import Fleet
from tests.gateway_process import Gateway

pytestmark = pytest.mark.browser

PASSWORD = "a pier of green heart"


def test_passkey_is_added_signs_in_and_is_removed(
    fleet: Fleet, open_page: OpenPage, own_gateway: Callable[..., Gateway]
) -> None:
    # Passkeys belong to a name, and count for the address in BASE_URL alone.
    watched = open_page("/", on=own_gateway(host="localhost"))
    page = watched.page
    otto = factories.operator()
    # As the server keeps it, which is a process of its own.
    otto.password = PBKDF2PasswordHasher().encode(PASSWORD, "salt")
    otto.save()
    watched.url = watched.url.replace("127.0.0.1", "localhost")
    page.context.clear_cookies()
    calls = page.context.new_cdp_session(page)
    calls.send("WebAuthn.enable")
    options = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True}
    made = calls.send(
        "WebAuthn.addVirtualAuthenticator",
        {"options": {**options, "isUserVerified": True, "automaticPresenceSimulation": True}},
    )
    watched.log_in("otto", PASSWORD, "/you/signing-in/")
    page.get_by_role("link", name="Add a passkey").click()
    page.get_by_role("textbox", name="Name", exact=True).fill("Laptop <b>")
    page.get_by_role("button", name="Add the passkey").click()
    expect(page.get_by_role("heading", name="Your recovery codes")).to_be_visible()
    expect(page.get_by_role("row", name="Laptop <b>")).to_be_visible()
    found = calls.send("WebAuthn.getCredentials", {"authenticatorId": made["authenticatorId"]})
    assert len(found["credentials"]) == 1

    # The passkey alone signs in, without a name and a password.
    page.context.clear_cookies()
    watched.open("/accounts/login/?next=/sets/")
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_role("heading", name="Availability sets")).to_be_visible()

    # Behind the password it is the second factor.
    page.context.clear_cookies()
    watched.log_in("otto", PASSWORD, "/you/signing-in/")
    page.get_by_role("button", name="Use your passkey").click()

    page.get_by_role("button", name="Remove Laptop").click()
    expect(page.get_by_text("You have no second factor yet.")).to_be_visible()
    # It is on the machine still, and opens nothing here.
    page.context.clear_cookies()
    watched.open("/accounts/login/")
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_role("alert")).to_contain_text("The passkey was not accepted.")
    watched.quiet()


@pytest.mark.flow
@pytest.mark.real_time
def test_who_waits_is_ticked_at_the_top_left_of_its_card(fleet: factories.Fleet, open_page: OpenPage) -> None:
    ada = factories.admin()
    for number in range(3):
        agent = fleet.enrol(f"door{number}", vm_id=f"00000000-0000-4000-8000-0000000d000{number}")
        instance = {"location": "northeurope", "privateIpAddresses": ["10.9.9.9"], "subscriptionId": "another"}
        request = wire.EnrolRequest(
            join_token=fleet.join_token, machine_id=agent.machine.vm_id, resource_name="rebuilt", ask="a secret",
            instance=instance, agent_version="0.2.0",
        )  # fmt: skip
        enrolment.enrol(request=request, now=fleet.now, address="203.0.113.9")
    for size in (WIDE, PHONE):
        watched = open_page("/admissions/?q=rebuilt", who=ada.username, viewport=size)
        card = watched.page.locator(".admission").first
        box, whole = card.locator("input").bounding_box(), card.bounding_box()
        assert box is not None and whole is not None
        assert box["x"] - whole["x"] < 40 and box["y"] - whole["y"] < 40, (size, box, whole)
        assert watched.faults() == []
    page = watched.page
    page.locator(".admission input").first.check()
    page.get_by_role("button", name="Admit", exact=True).click()
    expect(page.get_by_text("Admitted: 1.")).to_be_visible()
    assert Admission.objects.filter(resource_name="rebuilt", admitted_by="ada").count() == 1
    Admission.objects.all().delete()
