"""Does SMTP jobs: one mail to one recipient, each step of the conversation with its own answer."""

from __future__ import annotations

import re
import smtplib
from contextlib import suppress
from ssl import SSLContext

from fleet.notify.sender.guard import Guard
from fleet.notify.sender.jobs import Answer, SendError, SmtpJob
from fleet.notify.sender.limits import Late
from fleet.notify.sender.web import plain, what_failed

# One address and nothing that ends a line or a command.
MAILBOX = re.compile(r"[^\s<>()\[\],;:\\\"\x00-\x20\x7f]+@[^\s<>()\[\],;:\\\"@\x00-\x20\x7f]+")


class ServerSaysNo(Exception):
    """The server answered a step with something else than yes: its code and its words."""


def perform(job: SmtpJob, *, guard: Guard, tls: SSLContext) -> Answer:
    """Sends the mail; what goes wrong is in the answer. Raises Late before the server has taken it."""
    if not (MAILBOX.fullmatch(job.recipient) and MAILBOX.fullmatch(job.sender)):
        return Answer(ok=False, error=SendError.BAD_JOB)
    try:
        guard.check(plain(job.host), job.port)
        code, words = delivered(job, tls)
    except ServerSaysNo as no:
        return Answer(ok=False, status=no.args[0], body=readable(no.args[1]), error=SendError.STATUS)
    except smtplib.SMTPResponseException as no:
        return Answer(ok=False, status=no.smtp_code, body=readable(no.smtp_error), error=SendError.STATUS)
    # The server does not speak what was asked for; what it does speak must not be less safe than that.
    except smtplib.SMTPNotSupportedError as error:
        starttls = job.tls == "starttls" and "STARTTLS" in str(error)
        return Answer(ok=False, body=str(error), error=SendError.TLS if starttls else SendError.STATUS)
    except (OSError, smtplib.SMTPException) as error:
        return Answer(ok=False, error=SendError.REFUSED_ADDRESS if guard.refused else what_failed(error))
    return Answer(ok=True, status=code, body=readable(words))


def delivered(job: SmtpJob, tls: SSLContext) -> tuple[int, bytes]:
    """The server's last word, a yes. Raises ServerSaysNo, SMTPException or OSError."""
    if job.tls == "tls":
        server: smtplib.SMTP = smtplib.SMTP_SSL(timeout=job.limit_seconds, context=tls)
    else:
        server = smtplib.SMTP(timeout=job.limit_seconds)
    # Certificates are checked against it; smtplib knows it only when it connects by itself.
    server._host = job.host  # type: ignore[attr-defined]
    try:
        expect(server.connect(job.host, job.port), 220)
        if job.tls == "starttls":
            expect(server.starttls(context=tls), 220)
        if job.user:
            server.login(job.user, job.password)
        server.ehlo_or_helo_if_needed()
        wide = [] if (job.sender + job.recipient).isascii() else ["SMTPUTF8"]
        if wide and not server.has_extn("smtputf8"):
            raise smtplib.SMTPNotSupportedError("The server takes no addresses beyond ASCII.")
        expect(server.mail(job.sender, wide), 250)
        expect(server.rcpt(job.recipient), 250, 251)
        return expect(server.data(job.message), 250)
    finally:
        # It has said what counts; whether it also says goodbye does not matter.
        with suppress(OSError, smtplib.SMTPException, Late):
            server.quit()
        server.close()


def expect(answer: tuple[int, bytes], *codes: int) -> tuple[int, bytes]:
    if answer[0] not in codes:
        raise ServerSaysNo(*answer)
    return answer


def readable(words: bytes | str) -> str:
    return words.decode("utf-8", "replace") if isinstance(words, bytes) else words
