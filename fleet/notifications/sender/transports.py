"""HTTP and SMTP transports of the sender process."""

import re
import smtplib
import socket
from contextlib import closing, suppress
from ipaddress import IPv4Address
from ssl import SSLContext, SSLError
from typing import Any

from urllib3 import BaseHTTPResponse, PoolManager, ProxyManager, Timeout, exceptions
from urllib3.util import Url, parse_url

from fleet.notifications.sender.guard import Guard, Late
from fleet.notifications.sender.jobs import Answer, HttpJob, SendError, SmtpJob

METHODS = frozenset({"DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"})
KEPT_HEADERS = frozenset({"content-type", "date", "location", "retry-after"})
# Forbidden anywhere in a URL, and escapes in the host, which some parsers read as dots.
NOT_IN_A_URL = re.compile(r"[\x00-\x20\x7f\\]|^[^/?#]*//[^/?#]*%")
PIECE = 8192


class BadUrl(ValueError):
    """The URL is not http or https, contains credentials, or is ambiguous."""


def send_http(job: HttpJob, *, guard: Guard, proxy: str, tls: SSLContext) -> Answer:
    """Send the request and return the answer. Failures are in the answer. Raises Late if the time limit passes before
    there is a status, ValueError for invalid headers.
    """
    try:
        url = checked(job.url)
    except (BadUrl, exceptions.LocationParseError):
        return Answer(ok=False, error=SendError.BAD_URL)
    if job.method not in METHODS:
        return Answer(ok=False, error=SendError.BAD_JOB)
    options: dict[str, Any] = {
        "timeout": Timeout(connect=job.limit_seconds, read=job.limit_seconds),
        "ssl_context": tls,
    }
    try:
        # Also if a proxy makes the connection, and if the machine has no IPv6.
        guard.check(plain(url.host or ""), url.port or (443 if url.scheme == "https" else 80))
        with ProxyManager(f"http://{proxy}", **options) if proxy else PoolManager(**options) as pool:
            response = pool.urlopen(
                job.method,
                url._replace(fragment=None).url,
                body=job.body or None,
                headers={"User-Agent": "Drydock", "Accept-Encoding": "identity"} | job.headers,
                redirect=False,
                retries=False,
                preload_content=False,
                decode_content=False,
            )
            with closing(response):
                return received(response, job.most_bytes)
    except (exceptions.HTTPError, OSError) as error:
        return Answer(ok=False, error=SendError.REFUSED_ADDRESS if guard.refused else what_failed(error))


def checked(text: str) -> Url:
    """Parse and check a URL. The returned parts are used for the request. Raises BadUrl or LocationParseError."""
    if NOT_IN_A_URL.search(text):
        raise BadUrl
    url = parse_url(text)
    host = (url.host or "").strip("[]")
    if url.scheme not in ("http", "https") or url.auth is not None or not host or url.port == 0:
        raise BadUrl
    return url


def plain(host: str) -> str:
    """Return the host. An IPv4 address in an unusual notation (2852039166, 0xa9fea9fe, 169.254.43518) is converted to
    the usual one.
    """
    with suppress(OSError, ValueError):
        return str(IPv4Address(socket.inet_aton(host)))
    return host.strip("[]")


def received(response: BaseHTTPResponse, most: int) -> Answer:
    """Return the answer for an HTTP response. The status determines success, even if the body is slow, endless or
    invalid. At most `most` bytes are read.
    """
    body, cut = bytearray(), True
    # Failures while the body is read do not change that it answered.
    with suppress(Late, exceptions.HTTPError, OSError):
        while len(body) <= most and (piece := response.read1(PIECE)):
            body += piece
        cut = len(body) > most
    ok = 200 <= response.status < 300
    redirect = 300 <= response.status < 400 and "location" in response.headers
    return Answer(
        ok=ok,
        status=response.status,
        error=SendError.NONE if ok else SendError.REDIRECT if redirect else SendError.STATUS,
        headers={name.lower(): value for name, value in response.headers.items() if name.lower() in KEPT_HEADERS},
        body=bytes(body[:most]).decode("utf-8", "replace"),
        cut=cut,
    )


def what_failed(error: BaseException) -> SendError:
    """Return the error code for an exception of urllib3, requests or the standard library, according to its cause."""
    seen: BaseException | None = error
    while seen is not None:
        for kind, code in (
            ((exceptions.NameResolutionError, socket.gaierror), SendError.DNS),
            ((exceptions.LocationParseError,), SendError.BAD_URL),
            ((exceptions.SSLError, SSLError), SendError.TLS),
            ((exceptions.NewConnectionError, ConnectionRefusedError), SendError.CONNECT),
            ((exceptions.TimeoutError,), SendError.TIMEOUT),
        ):
            if isinstance(seen, kind):
                return code
        reasons = [seen.__cause__, seen.__context__, *(arg for arg in seen.args if isinstance(arg, BaseException))]
        seen = next((reason for reason in reasons if reason is not None), None)
    return SendError.CONNECT if isinstance(error, exceptions.ProxyError) else SendError.NO_ANSWER


# SMTP jobs: one mail to one recipient, with the answer to each step.


# One address, without characters that end a line or a command.
MAILBOX = re.compile(r"[^\s<>()\[\],;:\\\"\x00-\x20\x7f]+@[^\s<>()\[\],;:\\\"@\x00-\x20\x7f]+")


def send_mail(job: SmtpJob, *, guard: Guard, tls: SSLContext) -> Answer:
    """Send the mail and return the answer. Failures are in the answer. Raises Late if the time limit passes before the
    server accepts the mail.
    """
    if not (MAILBOX.fullmatch(job.recipient) and MAILBOX.fullmatch(job.sender)):
        return Answer(ok=False, error=SendError.BAD_JOB)
    try:
        guard.check(plain(job.host), job.port)
        code, words = delivered(job, tls)
    except smtplib.SMTPResponseException as no:
        return Answer(ok=False, status=no.smtp_code, body=readable(no.smtp_error), error=SendError.STATUS)
    # The server does not support a required extension; a less secure connection is not an alternative.
    except smtplib.SMTPNotSupportedError as error:
        starttls = job.tls == "starttls" and "STARTTLS" in str(error)
        return Answer(ok=False, body=str(error), error=SendError.TLS if starttls else SendError.STATUS)
    except (OSError, smtplib.SMTPException) as error:
        return Answer(ok=False, error=SendError.REFUSED_ADDRESS if guard.refused else what_failed(error))
    return Answer(ok=True, status=code, body=readable(words))


def delivered(job: SmtpJob, tls: SSLContext) -> tuple[int, bytes]:
    """Deliver the mail. Return the code and text with which the server accepted it. Raises SMTPException or
    OSError.
    """
    if job.tls == "tls":
        server: smtplib.SMTP = smtplib.SMTP_SSL(timeout=job.limit_seconds, context=tls)
    else:
        server = smtplib.SMTP(timeout=job.limit_seconds)
    # The host for certificate checks, which smtplib sets only if it connects by itself.
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
        # The result is known; the answer to QUIT is irrelevant.
        with suppress(OSError, smtplib.SMTPException, Late):
            server.quit()
        server.close()


def expect(answer: tuple[int, bytes], *codes: int) -> tuple[int, bytes]:
    if answer[0] not in codes:
        raise smtplib.SMTPResponseException(*answer)
    return answer


def readable(words: bytes | str) -> str:
    return words.decode("utf-8", "replace") if isinstance(words, bytes) else words
