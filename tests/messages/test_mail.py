"""Mail channel: a real server gets one mail for each recipient, once."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from email import message_from_string, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword
from pytest_django import Settings

from fleet.notifications.channels import mail
from fleet.notifications.models import Reference
from fleet.notifications.notification_types import NotificationType
from fleet.notifications.sender.pool import COMMAND, Pool
from tests import factories
from tests.certificates import Authority
from tests.factories import EVENT, Fleet
from tests.messages.posts import ChannelDriver, driver_of
from tests.processes import free_port

pytestmark = pytest.mark.django_db


@dataclass
class MailServer:
    """A mail server in a thread of its own, that keeps what it got.

    Recipients decide the result: `nobody@` is refused permanently and `later@` temporarily. The login is `ann` with the
    password `hunter2`.
    """

    port: int
    got: list[dict[str, Any]] = field(default_factory=list)

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:  # noqa: N802
        if address.startswith("nobody@"):
            return "550 no such mailbox"
        if address.startswith("later@"):
            return "450 busy, try later"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        tls = server.transport.get_extra_info("ssl_object") is not None
        mail = {"to": envelope.rcpt_tos, "text": envelope.content.decode(), "tls": tls, "by": session.auth_data}
        self.got.append(mail)
        return "250 taken as 4711"

    def said(self) -> list[dict[str, Any]]:
        """What came since the last time."""
        got, self.got = self.got, []
        return got

    def mails(self) -> list[EmailMessage]:
        return [message_from_string(each["text"], policy=policy.default) for each in self.said()]  # type: ignore[misc]


def known(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
    right = isinstance(data, LoginPassword) and (data.login, data.password) == (b"ann", b"hunter2")
    return AuthResult(success=right, auth_data="ann" if right else None, handled=False)


@contextmanager
def mail_server(**options: Any) -> Iterator[MailServer]:
    """The server listens, for the length of a block. With a `tls_context` there is STARTTLS, with an `ssl_context` TLS
    from the first byte.
    """
    found = MailServer(free_port())
    options |= {"hostname": "127.0.0.1", "port": found.port, "authenticator": known, "auth_require_tls": False}
    controller = Controller(found, **options)
    controller.start()
    try:
        yield found
    finally:
        controller.stop()


@pytest.fixture(scope="module")
def server() -> Iterator[MailServer]:
    with mail_server() as found:
        yield found


@pytest.fixture
def driver(
    fleet: Fleet, server: MailServer, reach_loopback: None, loopback_pool: Pool, settings: Settings, monkeypatch: Any
) -> ChannelDriver:
    # As in production, where nothing of the machine may be reached: the server is trusted because it is named.
    monkeypatch.setattr(loopback_pool, "allow", ())
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", server.port
    settings.BASE_URL = "https://drydock.example"
    server.said()
    factories.announced(fleet)
    return driver_of(mail, fleet, recipients=["ann@example.org"])


def test_a_mail_says_in_text_and_html_what_happens_and_leads_to_the_page(
    driver: ChannelDriver, server: MailServer
) -> None:
    evil = "<b onclick=x>&amp; 4 of 6 stay up"
    outcome = driver.tell(NotificationType.FIRST_SEEN, lines=[evil])
    assert (outcome.ok, outcome.status, outcome.answer) == (True, 250, "taken as 4711")
    [got] = server.mails()
    assert (got["From"], got["To"]) == ("Drydock <drydock@drydock.example>", "ann@example.org")
    assert got["Subject"] == "Freeze of vm1, vm2"
    assert got["Auto-Submitted"] == "auto-generated"
    text, page = got.get_body(["plain"]), got.get_body(["html"])
    assert text is not None and page is not None
    url = f"https://drydock.example/events/{EVENT}/"
    assert text.get_content().splitlines()[:4] == ["Freeze of vm1, vm2", evil, "", url]
    assert f"<p>{'&lt;b onclick=x&gt;&amp;amp; 4 of 6 stay up'}</p>" in page.get_content()
    assert page.get_content().count("href=") == 1 and f'<a href="{url}">' in page.get_content()


def test_all_mails_of_one_event_are_one_thread(driver: ChannelDriver, server: MailServer) -> None:
    first = driver.post(NotificationType.FIRST_SEEN)
    for post in (first, first, driver.post(NotificationType.STARTED, title="Freeze of vm1, vm2")):
        assert driver.send(post).ok
    one, again, other = server.mails()
    assert one["Message-ID"] == again["Message-ID"] == f"<{first.id}@drydock.example>"
    assert other["Message-ID"] != one["Message-ID"]
    assert {each["References"] for each in (one, again, other)} == {other["In-Reply-To"]}
    assert {each["Subject"] for each in (one, again, other)} == {"Freeze of vm1, vm2"}
    row = first.items[0].news.subject.replace(":", ".")
    assert other["References"] == f"<{row}@drydock.example>"


def test_refused_recipient_does_not_stop_other_mails(driver: ChannelDriver, server: MailServer) -> None:
    driver.values["recipients"] = ["ann@example.org", "nobody@example.org", "bob@example.org"]
    outcome = driver.first_seen(EVENT)
    assert (outcome.ok, outcome.error) == (True, "some_refused")
    assert outcome.answer == "nobody@example.org: 550 no such mailbox"
    taken = server.said()
    assert [each["to"] for each in taken] == [["ann@example.org"], ["bob@example.org"]]
    assert not any("nobody" in each["text"] for each in taken)
    driver.values["recipients"] = ["nobody@example.org"]
    unknown = driver.first_seen(EVENT)
    assert (unknown.ok, unknown.again, unknown.status, unknown.error) == (False, False, 550, "status")


def test_who_has_got_it_does_not_get_it_again(driver: ChannelDriver, server: MailServer) -> None:
    driver.values["recipients"] = ["ann@example.org", "later@example.org", "bob@example.org"]
    post = driver.post(NotificationType.FIRST_SEEN)
    outcome = driver.send(post)
    assert (outcome.ok, outcome.again, outcome.status) == (False, True, 450)
    assert [each["to"] for each in server.said()] == [["ann@example.org"]]
    # Meanwhile that mailbox is no more.
    driver.values["recipients"] = ["ann@example.org", "bob@example.org"]
    kept = dict(Reference.objects.values_list("subject", "value"))
    assert driver.send(replace(post, references=kept)).ok
    assert [each["to"] for each in server.said()] == [["bob@example.org"]]
    assert not Reference.objects.exists()
    # References of another delivery are ignored.
    assert driver.send(replace(driver.post(NotificationType.STARTED), references=kept)).ok
    assert [each["to"] for each in server.said()] == [["ann@example.org"], ["bob@example.org"]]


def test_a_group_and_a_try_are_mails_of_their_own(driver: ChannelDriver, server: MailServer) -> None:
    assert driver.tell().ok
    assert driver.tell(NotificationType.FIRST_SEEN, NotificationType.CLAIMED).ok
    tried, group = server.mails()
    assert (tried["References"], tried["Subject"]) == (None, "0 messages")
    # Both are about the same event.
    assert group["References"] is not None


def test_without_a_server_mail_fails_with_a_reason(driver: ChannelDriver, settings: Settings) -> None:
    for host, port, error in (
        ("", 25, "no_mail_server"),
        ("127.0.0.1", free_port(), "connect"),
        ("169.254.169.254", 25, "refused_address:azure"),
    ):
        settings.EMAIL_HOST, settings.EMAIL_PORT = host, port
        outcome = driver.first_seen(EVENT)
        assert (outcome.ok, outcome.again, outcome.error) == (False, True, error)


def test_a_wrong_password_is_tried_again_and_not_shown(
    driver: ChannelDriver, server: MailServer, settings: Settings
) -> None:
    settings.EMAIL_HOST_USER, settings.EMAIL_HOST_PASSWORD = "ann", "hunter2"
    assert driver.first_seen(EVENT).ok
    [said] = server.said()
    assert said["by"] == "ann"
    settings.EMAIL_HOST_PASSWORD = "not-hunter2"
    outcome = driver.first_seen(EVENT)
    assert (outcome.ok, outcome.again, outcome.status) == (False, True, 535)
    assert "hunter2" not in outcome.answer


@pytest.mark.parametrize("at_once", [False, True])
def test_certificates_of_the_server_are_checked(
    driver: ChannelDriver, settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, at_once: bool
) -> None:
    authority = Authority(tmp_path)
    authority.server("127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "127.0.0.1.pem")
    trusting = Pool(most=1, command=(*COMMAND, str(authority.path)))
    with mail_server(**{"ssl_context" if at_once else "tls_context": context}) as there:
        settings.EMAIL_PORT, settings.EMAIL_USE_SSL, settings.EMAIL_USE_TLS = there.port, at_once, not at_once
        assert driver.first_seen(EVENT).error == "tls"
        monkeypatch.setattr(mail, "send_job", trusting.send)
        assert driver.first_seen(EVENT).ok
        assert [each["tls"] for each in there.said()] == [True]
    trusting.close()


def test_a_server_without_starttls_gets_nothing(driver: ChannelDriver, server: MailServer, settings: Settings) -> None:
    settings.EMAIL_USE_TLS = True
    outcome = driver.first_seen(EVENT)
    assert (outcome.ok, outcome.again, outcome.error) == (False, True, "tls")
    assert server.said() == []
