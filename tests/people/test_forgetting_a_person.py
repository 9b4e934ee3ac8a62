"""Erasing a person: names are in one table, entries name a pseudonym, and their seals verify before and after."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core.management import CommandError, call_command
from django.db import connection, models

from fleet.accounts import external_accounts, privacy, tokens
from fleet.accounts import queries as account_queries
from fleet.accounts import services as account_services
from fleet.accounts.privacy import COLUMNS, ErasureAction
from fleet.audit import queries as audit_queries
from fleet.audit.seals import seal
from fleet.domain.approvals.conditions import When
from fleet.domain.pseudonyms import erased_name, pseudonym
from fleet.domain.reasons import Refused
from fleet.domain.timeline import EntryKind
from fleet.models import ApiToken, Approval, Claim, Entry, FormerName, KnownDevice, Stop
from fleet.notifications import route_services
from fleet.notifications.models import Channel, Route
from fleet.operations import profile
from fleet.operations.approvals import claims, conditions
from fleet.operations.policy import rules
from fleet.operations.timeline.entries import entry, write
from fleet.projections.timeline.entries import rows_of
from tests import accounts, factories
from tests.api.conftest import caller
from tests.archive.shelves import findings
from tests.dashboard.conftest import logged_in, text_of
from tests.factories import EVENT, acting
from tests.words import refused

NAME = "zelda.quist"
IMPERSONAL = Path(__file__).with_name("impersonal_columns.txt")
pytestmark = pytest.mark.django_db


def columns() -> Iterator[str]:
    """Every column that holds what could be a name, or leads to an account."""
    texts = (models.TextField, models.CharField, models.JSONField, models.BinaryField, models.EmailField)
    for model in apps.get_models(include_auto_created=True):
        fields = model._meta.concrete_fields
        leading = [field for field in fields if field.is_relation and field.related_model is User]
        goes = any(COLUMNS.get(f"{model._meta.label}.{field.name}") is ErasureAction.GOES for field in leading)
        for field in leading if goes else fields:
            if field in leading or (isinstance(field, texts) and not field.is_relation):
                yield f"{model._meta.label}.{field.name}"


def test_every_column_with_personal_data_has_an_erasure_action() -> None:
    lines = [line.split(": ") for line in IMPERSONAL.read_text().splitlines() if not line.startswith("#")]
    there, listed = set(columns()), {*COLUMNS, *(f"{model}.{name}" for model, names in lines for name in names.split())}
    unlisted = sorted(there - listed)
    assert not unlisted, (
        f"List in fleet/accounts/privacy.py what becomes of {', '.join(unlisted)} when a user is erased, or in"
        f" {IMPERSONAL.name} that it can name no user."
    )
    assert sorted(listed - there) == [], "columns are listed that no longer exist"


def busy(fleet: factories.Fleet) -> User:
    """Create a person who has done a little of everything."""
    zelda = factories.person(NAME, "approver")
    User.objects.filter(pk=zelda.pk).update(email=f"{NAME}@example.org", first_name="Zelda", last_name="Quist")
    acts, now = acting(zelda, why="storm"), fleet.now
    claims.claim(event_id=EVENT, actor=acts, now=now)
    approval = fleet.approve(by=zelda, when=When.TIME, due_at=now + timedelta(minutes=5))
    conditions.withdraw(approval_id=approval.pk, actor=acts, now=now)
    claims.hold(event_id=EVENT, actor=acts, now=now)
    claims.lift(event_id=EVENT, actor=acts, now=now)
    rules.stop_all(actor=acts, now=now)
    rules.lift(actor=acting(factories.admin(), why="over"), now=now)
    accounts.token(user=zelda, name="deploys", scopes=["read"], now=now)
    external_accounts.link(
        actor=acting(factories.admin()), username=NAME, kind="slack", team="T", account="U7", now=now, name="Z"
    )
    route_services.register_browser(
        actor=acts, name="phone", endpoint="https://push.example.org/1", p256dh="A" * 87, auth="A" * 22, now=now
    )
    view = {"name": "mine", "page": "sets", "query": "q=a", "shared": True}
    profile.save_view(profile.ViewForm(view), actor=acts, now=now)
    KnownDevice.objects.create(user=zelda, secret_hash="d", made_at=now)
    session = logged_in(zelda)
    assert session.get("/you/").status_code == 200
    return zelda


def read(answer: Any) -> str:
    return b"".join(answer.streaming_content).decode() if answer.streaming else text_of(answer)


def everywhere(name: str) -> list[str]:
    """The tables in which a text stands anywhere."""
    found = []
    with connection.cursor() as cursor:
        for model in apps.get_models(include_auto_created=True):
            table = model._meta.db_table
            cursor.execute(f'SELECT count(*) FROM "{table}" AS row WHERE row::text ILIKE %s', [f"%{name}%"])
            if cursor.fetchone()[0]:
                found.append(model._meta.label)
    return found


def test_after_it_the_name_is_nowhere_and_the_chain_verifies(fleet: factories.Fleet) -> None:
    zelda = busy(fleet)
    seal(now=datetime.now(UTC), via="tests")
    assert findings() == []
    assert "fleet.Entry" not in everywhere(NAME), "a sealed line holds a name"
    found = privacy.forget(username=NAME, actor=acting(factories.admin()), now=fleet.now)
    assert everywhere(NAME) == []
    assert everywhere("Quist") == []
    assert not FormerName.objects.exists(), "no line holds the name itself, so no hash of it is kept"
    seal(now=datetime.now(UTC), via="tests")
    assert findings() == []
    zelda.refresh_from_db()
    assert (zelda.username, zelda.email, zelda.is_active) == (erased_name(zelda.pk), "", False)
    assert not zelda.has_usable_password()
    assert {"fleet.ApiToken", "sessions", "devices", "channels"} <= found.goes.keys()


def test_pages_calls_and_files_name_a_pseudonym_from_then_on(fleet: factories.Fleet) -> None:
    zelda = busy(fleet)
    ada = factories.admin()
    asks, session = caller(ada), logged_in(ada)
    addresses = ["/audit/", f"/events/{EVENT}/", "/timeline/", "/audit/export.csv", "/audit/export.jsonl", "/handover/"]
    calls = [f"events/{EVENT}/", f"events/{EVENT}/timeline/", "audit/", "approvals/"]

    def told() -> dict[str, str]:
        pages = {one: read(session.get(one, follow=True)) for one in addresses}
        return pages | {one: json.dumps(asks.get(one).json()) for one in calls}

    before = told()
    for one, text in before.items():
        assert NAME in text, one
        assert pseudonym(zelda.pk) not in text, one
    privacy.forget(username=NAME, actor=acting(ada), now=fleet.now)
    for one, text in told().items():
        assert NAME not in text, one
        assert erased_name(zelda.pk) in text, one


def test_who_did_something_is_found_by_name_before_and_by_pseudonym_after(fleet: factories.Fleet) -> None:
    zelda = busy(fleet)

    def found(**asked: str) -> int:
        return len(audit_queries.listing(entries=audit_queries.AuditFilter(asked).qs).results)

    before = found(person=NAME)
    assert 8 < before <= found(q="zelda")
    privacy.forget(username=NAME, actor=acting(factories.admin()), now=fleet.now)
    counts = [found(person=name) for name in (NAME, erased_name(zelda.pk), pseudonym(zelda.pk))]
    assert counts == [0, before, before]


def test_lines_of_before_0_2_0_verify_and_show_the_name_no_more(fleet: factories.Fleet) -> None:
    zelda = factories.person(NAME, "operator")
    # As 0.1.0 wrote them: with the name itself, in the row, in its JSON and in a sentence.
    claimed = {"before": {"claim": None}, "after": {"claim": NAME}}
    Entry.objects.create(kind="event_claimed", at=fleet.now, actor=NAME, via="page", text="", **claimed)
    Entry.objects.create(kind="person_changed", at=fleet.now, actor="ada", via="api", text="", data={
        "person": NAME, "did": "changed"}, before={}, after={"active": True})  # fmt: skip
    Entry.objects.create(kind="wave_began", at=fleet.now, actor=NAME, via="api", text=f"Begun by {NAME}.", data={})
    seal(now=datetime.now(UTC), via="tests")
    lines = list(Entry.objects.order_by("pk").values_list("actor", "text", "data"))
    assert privacy.preview(username=NAME).older == 2
    privacy.forget(username=NAME, now=fleet.now)
    assert findings() == []
    assert list(Entry.objects.order_by("pk").values_list("actor", "text", "data"))[: len(lines)] == lines
    shown = json.dumps([[row.actor, row.text, row.data, row.after] for row in rows_of(Entry.objects.all())])
    assert NAME not in shown
    assert f"Begun by {erased_name(zelda.pk)}." in shown
    # A later user with the same name is another person.
    newer = factories.person(NAME, "operator")
    claims.claim(event_id=EVENT, actor=acting(newer), now=fleet.now)
    told = [row.actor for row in rows_of(Entry.objects.filter(kind="event_claimed").order_by("pk"))]
    assert told == [erased_name(zelda.pk), NAME]


def test_a_machine_cannot_pass_for_a_person_by_its_name(fleet: factories.Fleet) -> None:
    name = pseudonym(factories.person(NAME, "operator").pk)
    Entry.objects.create(kind="event_seen", at=fleet.now, actor=name, via="agent", text="", data={"by": name})
    (row,) = rows_of(Entry.objects.filter(actor=name))
    assert (row.actor, row.data["by"]) == (name, name)


def test_names_of_a_page_are_one_query_however_many(fleet: factories.Fleet, django_assert_num_queries: Any) -> None:
    who = [factories.person(f"olga{number}", "operator") for number in range(5)]
    write([entry(EntryKind.VIEW_SAVED, acting(one), at=fleet.now, name="a", page="sets") for one in who])
    rows = list(Entry.objects.filter(kind="view_saved"))
    with django_assert_num_queries(2):
        # The second: names could be those of before 0.2.0.
        found = rows_of([*rows, Entry(kind="view_saved", at=fleet.now, actor="olga9", via="page", pk=1)])
    with django_assert_num_queries(1):
        assert len({row.actor for row in rows_of(rows)}) == 5
    assert found[-1].actor == "olga9"


def test_erased_user_cannot_sign_in_by_any_method(fleet: factories.Fleet) -> None:
    zelda = busy(fleet)
    token = accounts.token(user=zelda, name="x", scopes=["read"], now=fleet.now)[1]
    session = logged_in(zelda)
    privacy.forget(username=NAME, now=fleet.now)
    assert session.get("/you/").status_code == 302
    assert tokens.person_of_token(token=token, now=fleet.now) is None
    assert not [one for one in Session.objects.all() if str(zelda.pk) in json.dumps(one.get_decoded())]
    gone = (ApiToken.objects.filter(user=zelda), KnownDevice.objects.filter(user=zelda))
    assert not any(rows.exists() for rows in gone)
    assert not Claim.objects.filter(by=zelda, ended_at=None).exists()
    own = Channel.objects.get(owner=zelda)
    assert (own.secrets, own.settings, own.enabled) == ("", {}, False)
    assert not Route.objects.filter(owner=zelda, deleted_at=None).exists()
    assert Stop.objects.get().stopped_by == erased_name(zelda.pk)
    assert NAME not in Approval.objects.get().reason
    for change in (
        lambda: accounts.change_person(username=erased_name(zelda.pk), active=True, now=fleet.now),
        lambda: account_services.reset_password(username=erased_name(zelda.pk), now=fleet.now),
        lambda: privacy.forget(username=erased_name(zelda.pk), now=fleet.now),
    ):
        with refused("person-forgotten"):
            change()
    assert erased_name(zelda.pk) not in [row.username for row in account_queries.listing().results]


def test_erasure_needs_the_right_and_the_retyped_name(fleet: factories.Fleet) -> None:
    factories.person(NAME, "operator")
    ada, root = factories.admin(), factories.person("root", "admin")
    User.objects.filter(pk=root.pk).update(is_superuser=True)
    for who, whom, code in (
        (factories.approver(), NAME, "right-missing"),
        (ada, "ada", "forget-oneself"),
        (ada, "root", "superusers-only"),
        (ada, "nobody", "person-unknown"),
    ):
        with refused(code):
            privacy.forget(username=whom, actor=acting(who), now=fleet.now)
    User.objects.filter(pk=root.pk).update(is_active=False)
    with pytest.raises(Refused, match="last-admin"):
        privacy.forget(username="ada", now=fleet.now)
    session = logged_in(ada)
    answer = session.post(f"/people/{NAME}/forget/now/", {"confirmed": "zelda"})
    assert (answer.status_code, User.objects.filter(username=NAME).count()) == (422, 1)
    assert f"Type {NAME} to confirm" in text_of(answer)
    assert logged_in(factories.approver()).get(f"/people/{NAME}/forget/").status_code == 403


def test_the_page_says_before_what_goes_and_what_stays(fleet: factories.Fleet) -> None:
    zelda = busy(fleet)
    session = logged_in(factories.admin())
    text = text_of(session.get(f"/people/{NAME}/forget/"))
    goes = ("1 API token", "1 account in Slack or PagerDuty", "1 channel of their own", "1 approval")
    for part in (*goes, erased_name(zelda.pk)):
        assert part in text, part
    answer = session.post(f"/people/{NAME}/forget/now/", {"confirmed": NAME}, follow=True)
    assert f"The pseudonym is {erased_name(zelda.pk)}" in text_of(answer)
    line = Entry.objects.get(kind="person_forgotten")
    assert (NAME in str(line.data), line.data["person"], line.via) == (False, pseudonym(zelda.pk), "page")
    assert "erased" in text_of(session.get(f"/people/{erased_name(zelda.pk)}/"))


def test_the_command_looks_first_and_erases_with_yes(fleet: factories.Fleet) -> None:
    busy(fleet)
    out = StringIO()
    call_command("forget_person", NAME, stdout=out)
    assert "Would be erased:" in out.getvalue()
    assert "1 API token" in out.getvalue()
    assert User.objects.filter(username=NAME).exists()
    call_command("forget_person", NAME, yes=True, stdout=out)
    assert everywhere(NAME) == []
    with pytest.raises(CommandError, match="There is no user"):
        call_command("forget_person", NAME, yes=True)
