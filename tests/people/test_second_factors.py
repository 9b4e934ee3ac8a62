"""Second factors: every sign-in method requires them after the password, and guessing fails. Only a user who
re-authenticates changes them.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from fleet.accounts import factors, logins
from fleet.models import Entry, KnownDevice
from fleet.operations import step_up
from tests import factories
from tests.dashboard.conftest import logged_in, text_of

pytestmark = pytest.mark.django_db
PASSWORD = "harbour-otto"


def with_app(name: str) -> tuple[User, str, list[str]]:
    """Return a user with an authenticator app, its secret and its recovery codes."""
    user, secret = factories.operator(name), factors.new_secret()
    # Long ago, so that today's codes are fresh.
    code, at = factors.code_at(secret, 0), datetime.fromtimestamp(0, UTC)
    return user, secret, factors.add_app(actor=factories.acting(user), secret=secret, code=code, now=at)


class Otto:
    """With an authenticator app; `code` is what it says, `later` in that many steps."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.user, self.secret, self.codes = with_app("otto")

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
def otto(client: Client) -> Otto:
    return Otto(client)


@pytest.mark.parametrize("to", ["/sets/", "/admin/"])
def test_sign_in_needs_the_code_after_the_password(otto: Otto, to: str) -> None:
    answer = otto.password(to)
    assert answer["Location"] == "/accounts/second-factor/"
    assert not otto.is_in
    assert not KnownDevice.objects.exists()
    assert "Second factor" in text_of(otto.client.get("/accounts/second-factor/"))
    code = otto.code()
    assert otto.second(code)["Location"] == to
    assert otto.is_in
    assert KnownDevice.objects.count() == 1
    # A code that was seen counts no second time, in whichever process.
    otto.client.post("/accounts/logout/")
    otto.password()
    assert otto.second(code).status_code == 401
    assert not otto.is_in


def test_second_factor_page_needs_the_password_first(client: Client) -> None:
    assert client.get("/accounts/second-factor/")["Location"] == "/accounts/login/"
    assert client.post("/accounts/second-factor/", {"code": "000000"})["Location"] == "/accounts/login/"


def test_a_recovery_code_counts_once_and_leaves_its_line(otto: Otto) -> None:
    otto.password()
    assert otto.second(otto.codes[3])["Location"] == "/sets/"
    assert Entry.objects.get(data__did="code-used").after == {"codes": 9}
    otto.client.post("/accounts/logout/")
    otto.password()
    assert otto.second(otto.codes[3]).status_code == 401


def test_five_codes_a_challenge_then_the_password_again_and_twenty_an_hour_a_person(otto: Otto) -> None:
    for _ in range(4):
        otto.password()
        assert [otto.second("nonsense").status_code for _ in range(5)] == [401] * 5
        assert otto.second(otto.code())["Location"] == "/accounts/login/"
        assert "Too many wrong codes" in text_of(otto.client.get("/accounts/login/"))
    otto.password()
    answer = otto.second(otto.code())
    assert answer.status_code == 429
    assert 3500 < int(answer["Retry-After"]) <= 3600
    later = timezone.now() + timedelta(hours=1)
    assert logins.begin_factor(user=otto.user, challenge="another", now=later).wait == 0.0


def test_who_changes_a_factor_is_asked_again_first(otto: Otto) -> None:
    otto.client.force_login(otto.user)
    page = otto.client.get("/you/signing-in/passkey/")
    assert page["Location"] == "/you/again/?next=%2Fyou%2Fsigning-in%2Fpasskey%2F"
    row = Authenticator.objects.get(type="totp")
    assert "/you/again/" in otto.client.post(f"/you/signing-in/{row.pk}/remove/")["Location"]
    # The password alone is no proof where there is more.
    assert otto.client.post("/you/again/", {"password": PASSWORD}).status_code == 401
    wrong = otto.client.post("/you/again/", {"code": "000000", "next": "https://elsewhere.example/"})
    assert wrong.status_code == 401
    right = otto.client.post("/you/again/", {"code": otto.code(), "next": "//elsewhere.example/"})
    assert right["Location"] == "/"
    assert otto.client.post(f"/you/signing-in/{row.pk}/remove/")["Location"] == "/you/signing-in/"
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


def test_swapped_database_rows_do_not_sign_an_attacker_in(
    otto: Otto, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """An attacker with write access to the tables, and an app of their own, tries to sign in as Otto."""
    thief, secret, _ = with_app("eve")
    rows = {row.user_id: row for row in Authenticator.objects.filter(type="totp")}
    mine, theirs = rows[thief.pk], rows[otto.user.pk]
    mine.data["secret"], theirs.data["secret"] = theirs.data["secret"], mine.data["secret"]
    mine.save()
    theirs.save()
    code = factors.code_at(secret, int(timezone.now().timestamp()) // factors.STEP)
    otto.password()
    answer = otto.second(code)
    assert answer.status_code == 401 and "cannot be read" in text_of(answer)
    assert not otto.is_in
    assert f"factor:{otto.user.pk}:totp" in caplog.text
    # The real Otto has recovery codes, which are stored in a row of their own.
    assert otto.second(otto.codes[0]).status_code == 302
    assert otto.is_in
    # Nor does a secret of another kind of row fit.
    theirs.data["secret"] = Authenticator.objects.get(user=otto.user, type="recovery_codes").data["seed"]
    theirs.save()
    with pytest.raises(factors.UnreadableFactorError):
        factors.check_code(actor=factories.acting(otto.user), code=otto.code(), now=timezone.now())


def test_what_was_sealed_for_any_row_is_read_and_then_bound_to_its_own(otto: Otto) -> None:
    actor, now = factories.acting(otto.user), timezone.now()
    app = Authenticator.objects.get(type="totp")
    codes = Authenticator.objects.get(type="recovery_codes")
    with factors._of_row(otto.user.pk, "recovery_codes"):
        seed = factors.opened(codes.data["seed"])
    app.data["secret"] = factors.CIPHER.encrypt(otto.secret.encode(), of=factors.OF_ANY_ROW)
    codes.data["seed"] = factors.CIPHER.encrypt(seed.encode(), of=factors.OF_ANY_ROW)
    app.save()
    codes.save()
    for code in (otto.code(), otto.codes[3]):
        assert factors.check_code(actor=actor, code=code, now=now) is not None
    for kind, name, plain in (("totp", "secret", otto.secret), ("recovery_codes", "seed", seed)):
        text = Authenticator.objects.get(type=kind).data[name]
        assert factors.CIPHER.decrypt(text, of=factors.OF_ANY_ROW) is None
        assert factors.CIPHER.decrypt(text, of=f"factor:{otto.user.pk}:{kind}") == plain.encode()
    assert factors.check_code(actor=actor, code=otto.codes[3], now=now) is None, "it was used"


def test_factor_of_another_user_cannot_be_removed(otto: Otto, client: Client) -> None:
    vera = factories.viewer()
    other = logged_in(vera)
    session = other.session
    step_up.note(session, at=timezone.now())
    session.save()
    row = Authenticator.objects.get(type="totp")
    assert other.post(f"/you/signing-in/{row.pk}/remove/").status_code == 422
    assert other.post("/people/otto/factors/").status_code in (403, 422)
    assert Authenticator.objects.filter(pk=row.pk).exists()
    ada = logged_in(factories.admin())
    assert ada.post("/people/otto/factors/").status_code == 302
    assert not Authenticator.objects.exists()
    assert Entry.objects.get(data__did="factors-reset").before == {"factors": 1}


@pytest.fixture
def fleet() -> factories.Fleet:
    return factories.Fleet(now=timezone.now())


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
def test_a_session_that_ended_asks_for_the_code_in_its_place_too(
    fleet: factories.Fleet, otto: Otto, htmx: bool
) -> None:
    event = factories.announced(fleet)
    otto.client.force_login(otto.user)
    otto.client.get(f"/events/{event.event_id}/")
    Session.objects.all().delete()
    headers: dict[str, Any] = {"HX-Request": "true", "X-Drydock-User": "otto"} if htmx else {}
    sent = {"comment": "drained", "when": "now"}
    asked = otto.client.post(f"/events/{event.event_id}/approve/", sent, headers=headers)
    kept = {} if htmx else {"kept": asked.context["kept"].sealed}
    answer = otto.client.post(
        "/accounts/login/", {"login": "otto", "password": PASSWORD, **kept}, headers=headers, follow=True
    )
    assert "enter your second factor" in text_of(answer).lower()
    assert not otto.is_in
    wrong = otto.client.post("/accounts/second-factor/", {"code": "000000"}, headers=headers)
    assert (wrong.status_code, otto.is_in) == (401, False)
    back = otto.client.post("/accounts/second-factor/", {"code": otto.code()}, headers=headers, follow=True)
    assert (back.status_code, otto.is_in) == (200, True)
    assert ("drained" in text_of(back)) is not htmx
