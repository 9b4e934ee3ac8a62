"""Second factors: every sign-in method requires them after the password, and guessing fails. Only a user who
re-authenticates changes them.
"""

import json
import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from fleet.accounts import factors, logins, verification
from fleet.models import Entry, KnownDevice
from fleet.operations import step_up
from tests import accounts, factories
from tests.api.conftest import in_person
from tests.dashboard.conftest import text_of
from tests.people.soft_key import ORIGIN, SoftKey

pytestmark = pytest.mark.django_db
PASSWORD = "harbour-otto"


class Otto:
    """With an authenticator app; `code` is what it says, `later` in that many steps."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.user = factories.operator()
        self.secret, self.codes = accounts.add_app(self.user)

    def code(self, at: float | None = None) -> str:
        step = int((timezone.now().timestamp() if at is None else at) // factors.STEP)
        return factors.code_at(self.secret, step)

    def password(self, to: str = "/sets/") -> Any:
        return self.client.post(f"/accounts/login/?next={to}", {"login": "otto", "password": PASSWORD})

    def second(self, code: str) -> Any:
        return self.client.post("/accounts/second-factor/", {"code": code})

    @property
    def is_in(self) -> bool:
        return "_auth_user_id" in self.client.session


@pytest.fixture
def signing_in(client: Client) -> Otto:
    return Otto(client)


@pytest.mark.parametrize("to", ["/sets/", "/admin/"])
def test_sign_in_needs_the_code_after_the_password(signing_in: Otto, to: str) -> None:
    answer = signing_in.password(to)
    assert answer["Location"] == "/accounts/second-factor/"
    assert not signing_in.is_in
    assert not KnownDevice.objects.exists()
    assert "Second factor" in text_of(signing_in.client.get("/accounts/second-factor/"))
    code = signing_in.code()
    assert signing_in.second(code)["Location"] == to
    assert signing_in.is_in
    assert KnownDevice.objects.count() == 1
    # A code that was seen counts no second time, in whichever process.
    signing_in.client.post("/accounts/logout/")
    signing_in.password()
    assert signing_in.second(code).status_code == 401
    assert not signing_in.is_in


def test_second_factor_page_needs_the_password_first(client: Client) -> None:
    assert client.get("/accounts/second-factor/")["Location"] == "/accounts/login/"
    assert client.post("/accounts/second-factor/", {"code": "000000"})["Location"] == "/accounts/login/"


def test_a_recovery_code_counts_once_and_leaves_its_line(signing_in: Otto) -> None:
    signing_in.password()
    assert signing_in.second(signing_in.codes[3])["Location"] == "/sets/"
    assert Entry.objects.get(data__did="code-used").after == {"codes": 9}
    signing_in.client.post("/accounts/logout/")
    signing_in.password()
    assert signing_in.second(signing_in.codes[3]).status_code == 401


def test_five_codes_a_challenge_then_the_password_again_and_twenty_an_hour_a_person(signing_in: Otto) -> None:
    for _ in range(4):
        signing_in.password()
        assert [signing_in.second("nonsense").status_code for _ in range(5)] == [401] * 5
        assert signing_in.second(signing_in.code())["Location"] == "/accounts/login/"
        assert "Too many wrong codes" in text_of(signing_in.client.get("/accounts/login/"))
    signing_in.password()
    answer = signing_in.second(signing_in.code())
    assert answer.status_code == 429
    assert 3500 < int(answer["Retry-After"]) <= 3600
    later = timezone.now() + timedelta(hours=1)
    assert logins.begin_factor(user=signing_in.user, challenge="another", now=later).wait == 0.0


def test_who_changes_a_factor_is_asked_again_first(signing_in: Otto) -> None:
    signing_in.client.force_login(signing_in.user)
    page = signing_in.client.get("/you/signing-in/passkey/")
    assert page["Location"] == "/you/again/?next=%2Fyou%2Fsigning-in%2Fpasskey%2F"
    row = Authenticator.objects.get(type="totp")
    assert "/you/again/" in signing_in.client.post(f"/you/signing-in/{row.pk}/remove/")["Location"]
    # The password alone is no proof where there is more.
    assert signing_in.client.post("/you/again/", {"password": PASSWORD}).status_code == 401
    wrong = signing_in.client.post("/you/again/", {"code": "000000", "next": "https://elsewhere.example/"})
    assert wrong.status_code == 401
    right = signing_in.client.post("/you/again/", {"code": signing_in.code(), "next": "//elsewhere.example/"})
    assert right["Location"] == "/"
    assert signing_in.client.post(f"/you/signing-in/{row.pk}/remove/")["Location"] == "/you/signing-in/"
    # With the last one the recovery codes go.
    assert not Authenticator.objects.exists()
    assert Entry.objects.filter(data__did="factor-removed").count() == 1


def test_an_app_is_added_by_its_first_code_and_its_secret_is_nowhere_in_the_clear(client: Client) -> None:
    client.force_login(factories.operator())
    proof = {"password": PASSWORD, "next": "/you/signing-in/app/"}
    assert client.post("/you/again/", proof)["Location"].endswith("/app/")
    page = client.get("/you/signing-in/app/")
    secret = page.context["secret"]
    assert "data:image/svg+xml;base64," in page.content.decode()
    assert client.post("/you/signing-in/app/add/", {"code": "000000"}).status_code == 422
    step = int(timezone.now().timestamp()) // factors.STEP
    added = client.post("/you/signing-in/app/add/", {"code": factors.code_at(secret, step)})
    assert len(added.context["new_codes"]) == 10
    assert secret not in str(list(Authenticator.objects.values_list("data", flat=True)))
    line = Entry.objects.get(data__did="factor-added")
    assert line.after == {"factor": "totp"}
    assert secret not in str(line.data)
    assert "an authenticator app" in text_of(client.get("/audit/?person=otto"))


def test_swapped_rows_do_not_sign_an_attacker_in(signing_in: Otto, caplog: pytest.LogCaptureFixture) -> None:
    """An attacker with write access to the tables, and an app of their own, tries to sign in as Otto."""
    thief = factories.operator("eve")
    secret, _ = accounts.add_app(thief)
    rows = {row.user_id: row for row in Authenticator.objects.filter(type="totp")}
    mine, theirs = rows[thief.pk], rows[signing_in.user.pk]
    mine.data["secret"], theirs.data["secret"] = theirs.data["secret"], mine.data["secret"]
    mine.save()
    theirs.save()
    code = factors.code_at(secret, int(timezone.now().timestamp()) // factors.STEP)
    signing_in.password()
    answer = signing_in.second(code)
    assert answer.status_code == 401 and "cannot be read" in text_of(answer)
    assert not signing_in.is_in
    assert f"factor:{signing_in.user.pk}:totp" in caplog.text
    # The real Otto has recovery codes, which are stored in a row of their own.
    assert signing_in.second(signing_in.codes[0]).status_code == 302
    assert signing_in.is_in
    # Nor does a secret of another kind of row fit.
    theirs.data["secret"] = Authenticator.objects.get(user=signing_in.user, type="recovery_codes").data["seed"]
    theirs.save()
    with pytest.raises(factors.UnreadableFactorError):
        factors.check_code(actor=factories.acting(signing_in.user), code=signing_in.code(), now=timezone.now())


def test_what_was_sealed_for_any_row_is_read_and_then_bound_to_its_own(signing_in: Otto) -> None:
    actor, now = factories.acting(signing_in.user), timezone.now()
    app = Authenticator.objects.get(type="totp")
    codes = Authenticator.objects.get(type="recovery_codes")
    with factors._of_row(signing_in.user.pk, "recovery_codes"):
        seed = factors.opened(codes.data["seed"])
    app.data["secret"] = factors.CIPHER.encrypt(signing_in.secret.encode(), of=factors.OF_ANY_ROW)
    codes.data["seed"] = factors.CIPHER.encrypt(seed.encode(), of=factors.OF_ANY_ROW)
    app.save()
    codes.save()
    for code in (signing_in.code(), signing_in.codes[3]):
        assert factors.check_code(actor=actor, code=code, now=now) is not None
    for kind, name, plain in (("totp", "secret", signing_in.secret), ("recovery_codes", "seed", seed)):
        text = Authenticator.objects.get(type=kind).data[name]
        assert factors.CIPHER.decrypt(text, of=factors.OF_ANY_ROW) is None
        assert factors.CIPHER.decrypt(text, of=f"factor:{signing_in.user.pk}:{kind}") == plain.encode()
    assert factors.check_code(actor=actor, code=signing_in.codes[3], now=now) is None, "it was used"


def test_factor_of_another_user_cannot_be_removed(signing_in: Otto) -> None:
    other, ada = (in_person(person).client for person in (factories.viewer(), factories.admin()))
    row = Authenticator.objects.get(type="totp")
    assert other.post(f"/you/signing-in/{row.pk}/remove/").status_code == 422
    assert other.post("/people/otto/factors/").status_code in (403, 422)
    assert Authenticator.objects.filter(pk=row.pk).exists()
    assert ada.post("/people/otto/factors/").status_code == 302
    assert not Authenticator.objects.exists()
    assert Entry.objects.get(data__did="factors-reset").before == {"factors": 1}


def test_whatever_a_browser_sends_for_a_passkey_is_refused_and_no_more(client: Client) -> None:
    odd = ('{"id": 1}', '{"response": []}', '{"response": {"userHandle": "x"}, "id": "eA"}')
    for credential in ("", "[]", "{}", "null", "[" * 5000, *odd):
        assert client.get("/accounts/passkey/").json()["publicKey"]["userVerification"] == "required"
        answer = client.post("/accounts/passkey/", {"credential": credential, "next": "/sets/"})
        assert answer["Location"] == "/accounts/login/?next=/sets/"
        assert "The passkey was not accepted." in text_of(client.get("/accounts/login/"))


def test_who_only_asks_for_a_challenge_is_forgotten_within_minutes(db: None) -> None:
    for _ in range(3):
        assert Client().get("/accounts/passkey/").status_code == 200
    now = timezone.now()
    assert Session.objects.filter(expire_date__gt=now + timedelta(minutes=6)).count() == 0
    Session.objects.update(expire_date=now - timedelta(seconds=1))
    client = Client()
    client.get("/accounts/passkey/")
    assert Session.objects.count() == 1, "those that are over went"
    factories.operator()
    client.post("/accounts/login/", {"login": "otto", "password": PASSWORD})
    (session,) = Session.objects.all()
    assert session.expire_date > now + timedelta(hours=1), "a signed-in user keeps the full session length"


@pytest.mark.parametrize("htmx", [False, True])
def test_a_session_that_ended_asks_for_the_code_in_its_place_too(signing_in: Otto, htmx: bool) -> None:
    event, client = factories.announced(factories.Fleet(now=timezone.now())), signing_in.client
    client.force_login(signing_in.user)
    client.get(f"/events/{event.event_id}/")
    Session.objects.all().delete()
    headers: dict[str, Any] = {"HX-Request": "true", "X-Drydock-User": "otto"} if htmx else {}
    sent = {"comment": "drained", "when": "now"}
    asked = client.post(f"/events/{event.event_id}/approve/", sent, headers=headers)
    proof = {"login": "otto", "password": PASSWORD} | ({} if htmx else {"kept": asked.context["kept"].sealed})
    answer = client.post("/accounts/login/", proof, headers=headers, follow=True)
    assert "enter your second factor" in text_of(answer).lower()
    assert not signing_in.is_in
    wrong = client.post("/accounts/second-factor/", {"code": "000000"}, headers=headers)
    assert (wrong.status_code, signing_in.is_in) == (401, False)
    back = client.post("/accounts/second-factor/", {"code": signing_in.code()}, headers=headers, follow=True)
    assert (back.status_code, signing_in.is_in) == (200, True)
    assert ("drained" in text_of(back)) is not htmx


# A passkey's challenge counts once, for one purpose and one person, on the pages of this installation alone.


LOGIN, FACTOR, AGAIN = "/accounts/passkey/", "/accounts/second-factor/", "/you/again/"


@pytest.fixture(autouse=True)
def here(settings: Any) -> None:
    settings.BASE_URL = ORIGIN
    settings.ALLOWED_HOSTS = ["localhost", "testserver"]


def browser() -> Client:
    return Client(SERVER_NAME="localhost", SERVER_PORT="8000")


def asked(client: Client) -> dict[str, Any]:
    """What a passkey is asked to sign by who signs in without a password."""
    found: dict[str, Any] = client.get(LOGIN).json()
    return found


def behind_the_password(client: Client) -> dict[str, Any]:
    """What the page of the second factor asks a passkey to sign."""
    answer = client.post("/accounts/login/", {"login": "otto", "password": PASSWORD})
    assert answer["Location"] == FACTOR
    return options_of(client.get(FACTOR))


def options_of(answer: Any) -> dict[str, Any]:
    found = re.search(r"\{[^\"<>]*(?:&quot;|\")publicKey.*?\}\}?(?=\")", answer.content.decode(), re.DOTALL)
    assert found is not None
    decoded: dict[str, Any] = json.loads(unescape(found[0]))
    return decoded


def is_in(client: Client) -> bool:
    return client.get("/api/v1/me/").status_code == 200


def test_passkey_without_a_pin_needs_the_password(otto: User) -> None:
    key, client = SoftKey(otto, verifies=False).registered(), browser()
    client.post(LOGIN, {"credential": key.assertion(asked(client))})
    assert not is_in(client)
    # The page of the second factor asks for no PIN; what it asked counts behind the password alone.
    options = behind_the_password(client)
    client.post(LOGIN, {"credential": key.assertion(options)})
    assert not is_in(client)
    options = options_of(client.get(FACTOR))
    assert client.post(FACTOR, {"credential": key.assertion(options)}).status_code == 302
    assert is_in(client)


def test_a_challenge_of_one_purpose_counts_for_no_other(otto: User) -> None:
    key, client = SoftKey(otto).registered(), browser()
    options = behind_the_password(client)
    client.post(LOGIN, {"credential": key.assertion(options)})
    assert not is_in(client)
    client.get(FACTOR)
    assert client.post(FACTOR, {"credential": key.assertion(asked(client))}).status_code == 401
    assert not is_in(client)


def test_a_challenge_counts_once_whatever_the_answer_was(otto: User) -> None:
    key, client = SoftKey(otto).registered(), browser()
    signed = key.assertion(asked(client))
    client.post(LOGIN, {"credential": "{}"})
    client.post(LOGIN, {"credential": signed})
    assert not is_in(client)
    signed = key.assertion(asked(client))
    assert client.post(LOGIN, {"credential": signed}).status_code == 302
    assert is_in(client)
    client.post("/accounts/logout/")
    client.post(LOGIN, {"credential": signed})
    assert not is_in(client)


def test_an_old_challenge_counts_no_more(otto: User) -> None:
    key, client = SoftKey(otto).registered(), browser()
    signed = key.assertion(asked(client))
    session = client.session
    session[verification.CHALLENGES]["sign-in"]["at"] -= verification.CHALLENGE_SECONDS + 1
    session.save()
    client.post(LOGIN, {"credential": signed})
    assert not is_in(client)


def test_a_challenge_is_for_its_person(otto: User) -> None:
    """Of two people who share a browser, the second one's session holds nothing that the first was asked."""
    vera = factories.viewer()
    SoftKey(otto).registered()
    hers = SoftKey(vera).registered()
    client = browser()
    client.force_login(otto)
    options = options_of(client.get(AGAIN))
    kept = client.session[verification.CHALLENGES]
    client.force_login(vera)
    session = client.session
    session[verification.CHALLENGES] = kept
    session.save()
    assert client.post(AGAIN, {"credential": hers.assertion(options)}).status_code == 401
    assert not step_up.recent(step_up.last(client.session), now=timezone.now())


def test_only_a_page_of_this_very_address_may_have_asked(otto: User) -> None:
    key, client = SoftKey(otto).registered(), browser()
    origins = """http://localhost http://localhost:8001 https://localhost:8000 http://evil.localhost:8000
        http://localhost:8000/ HTTP://LOCALHOST:8000 http://localhost:8000.evil.example"""
    wrong: dict[str, list[Any]] = {
        "origin": [*origins.split(), "", None],
        "crossOrigin": [True, "false", 0, None],
        "type": ["webauthn.create"],
        "challenge": ["bm90IHdoYXQgd2FzIGFza2Vk"],
    }
    for name, value in ((name, value) for name, values in wrong.items() for value in values):
        assert client.post(LOGIN, {"credential": key.assertion(asked(client), **{name: value})}).status_code == 302
        assert not is_in(client), (name, value)


def test_the_address_is_compared_as_browsers_write_it(settings: Any) -> None:
    for base_url, origin in {
        "https://drydock.example": "https://drydock.example",
        "https://Drydock.Example:443/": "https://drydock.example",
        "https://drydock.example:8443": "https://drydock.example:8443",
        "http://localhost:80": "http://localhost",
    }.items():
        settings.BASE_URL = base_url
        assert verification.own_origin() == origin


@pytest.mark.parametrize("wrong", [{}, {"origin": "http://evil.localhost:8000"}, {"crossOrigin": True}])
def test_a_passkey_is_added_on_the_page_that_asked(otto: User, wrong: dict[str, Any]) -> None:
    client = browser()
    client.force_login(otto)
    accounts.prove(client)
    challenge = options_of(client.get("/you/signing-in/passkey/"))["publicKey"]["challenge"]
    told = json.dumps(SoftKey(otto).registration(challenge, **wrong))
    answers = [
        client.post("/you/signing-in/passkey/add/", {"name": "key", "credential": told}).status_code for _ in range(2)
    ]
    added = Authenticator.objects.filter(user=otto, type="webauthn").count()
    # Once, and only where nothing was wrong with it.
    assert added == (0 if wrong else 1), answers
