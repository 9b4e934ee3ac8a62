"""A mail server for tests, in a thread of its own, that keeps what it got.

Recipients decide the result: `nobody@` is refused permanently and `later@` temporarily. The login is `ann` with the
password `hunter2`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_string, policy
from email.message import EmailMessage
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

from tests.processes import free_port


@dataclass
class MailServer:
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
