"""A mail server for tests, as a process of its own: prints each mail as a line of JSON.

`python mail_server.py PORT [CERTIFICATE [tls]]`. Recipients decide the result: `nobody@` is refused permanently and
`later@` temporarily. With a certificate there is STARTTLS, with `tls` TLS from the first byte. The login is `ann` with
the password `hunter2`.
"""

import json
import ssl
import sys
import threading
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword


class Handler:
    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:  # noqa: N802
        if address.startswith("nobody@"):
            return "550 no such mailbox"
        if address.startswith("later@"):
            return "450 busy, try later"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        text = envelope.content.decode()
        tls = server.transport.get_extra_info("ssl_object") is not None
        said = {"from": envelope.mail_from, "to": envelope.rcpt_tos, "text": text, "tls": tls}
        sys.stdout.write(json.dumps({**said, "by": session.auth_data}) + "\n")
        sys.stdout.flush()
        return "250 taken as 4711"


def known(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
    right = isinstance(data, LoginPassword) and (data.login, data.password) == (b"ann", b"hunter2")
    return AuthResult(success=right, auth_data="ann" if right else None, handled=False)


port, *certificate = sys.argv[1:]
options: dict[str, Any] = {"authenticator": known, "auth_require_tls": False}
if certificate:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate[0])
    options["ssl_context" if certificate[1:] else "tls_context"] = context
Controller(Handler(), hostname="127.0.0.1", port=int(port), **options).start()
sys.stdout.write("ready\n")
sys.stdout.flush()
threading.Event().wait()
