"""Jobs and answers of the sender process, and their encoding on the pipe."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Literal
from urllib.parse import unquote, urlsplit

import msgspec

# Characters of an answer that are shown.
MOST_CHARACTERS = 500
# A longer pause that a receiver requests is cut to this.
MOST_RETRY_AFTER_SECONDS = 3600.0
# Every network except Azure's own addresses. For receivers that the installation configures, such as its mail server.
EVERYWHERE = ("0.0.0.0/0", "::/0")
# Shorter secrets would also match parts of ordinary words.
SHORTEST_SECRET = 6
SECRET_HEADERS = ("authorization", "cookie", "key", "secret", "signature", "token")
WHITE = re.compile(r"[^\S\n]+")


class SendError(StrEnum):
    """Reason why a job failed, or empty on success. `status`: the receiver responded with an error status."""

    NONE = ""
    STATUS = "status"
    REDIRECT = "redirect"
    REFUSED_ADDRESS = "refused_address"
    BAD_URL = "bad_url"
    BAD_JOB = "bad_job"
    DNS = "dns"
    CONNECT = "connect"
    TLS = "tls"
    # The receiver closed the connection without an answer.
    NO_ANSWER = "no_answer"
    TIMEOUT = "timeout"
    TOO_LARGE = "too_large"
    # The process ended during the job.
    DIED = "died"
    # No process was free in time: nothing was sent.
    BUSY = "busy"


class HttpJob(msgspec.Struct, frozen=True, tag="http"):
    """One HTTP request; redirects are not followed. `allow` are permitted networks in addition to EGRESS_ALLOWLIST.

    At most `most_bytes` of the response are read. `limit_seconds` is the time limit of the whole job.
    """

    method: str
    url: str
    headers: dict[str, str] = {}
    body: bytes = b""
    allow: tuple[str, ...] = ()
    limit_seconds: float = 15.0
    most_bytes: int = 65536


class SmtpJob(msgspec.Struct, frozen=True, tag="smtp"):
    """One mail to one recipient. With two recipients, a server could refuse one without stating which."""

    host: str
    port: int
    sender: str
    recipient: str
    # The mail as bytes, as sent to the server.
    message: bytes
    tls: Literal["none", "starttls", "tls"] = "none"
    user: str = ""
    password: str = ""
    allow: tuple[str, ...] = ()
    limit_seconds: float = 15.0


class AppriseJob(msgspec.Struct, frozen=True, tag="apprise"):
    """One notification that is sent with Apprise.

    `title` and `body` may contain text from machines and users. It appears literally, also if the service supports
    markup. `verbatim` is text of Drydock, for example a URL, and follows the body.
    """

    url: str
    title: str = ""
    body: str = ""
    verbatim: str = ""
    # Colour of the notification in the service.
    tone: Literal["info", "success", "warning", "failure"] = "info"
    allow: tuple[str, ...] = ()
    limit_seconds: float = 15.0


Job = HttpJob | SmtpJob | AppriseJob


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of a job.

    `ok`: the receiver accepted it. `answer` is the beginning of the response, without secrets of the job, to store and
    show. `body` is the response up to the limit, for programs only (`cut`: there was more). `reason` is set if the
    guard refused a connection. Names of `headers` are lower case.
    """

    ok: bool
    status: int | None = None
    answer: str = ""
    error: SendError = SendError.NONE
    reason: str = ""
    retry_after_seconds: float | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """A job as it is sent on the pipe, with further parameters for the process."""

    job: Job
    # `host:port`, or empty.
    proxy: str = ""
    allow: tuple[str, ...] = ()


ENCODER = msgspec.json.Encoder()
DECODE_ORDER = msgspec.json.Decoder(Order)
DECODE_ANSWER = msgspec.json.Decoder(Answer)


def presentable(answer: Answer, job: Job) -> Answer:
    """Return the answer with the field `answer` filled: the beginning of the receiver's text without the secrets of the
    job.
    """
    text = WHITE.sub(" ", "".join(c if c.isprintable() or c == "\n" else " " for c in answer.answer or answer.body))
    for secret in sorted(set(secrets_of(job)), key=len, reverse=True):
        text = text.replace(secret, "***")
    return replace(answer, answer=text.strip()[:MOST_CHARACTERS])


def secrets_of(job: Job) -> Iterator[str]:
    """Yield the secrets of a job that the receiver might repeat in the response, also in URL-encoded form."""
    secrets: list[str] = []
    if isinstance(job, HttpJob):
        for name, value in job.headers.items():
            if any(part in name.lower() for part in SECRET_HEADERS):
                secrets += [value, *value.split()]
        secrets += parts_of(job.url)
    elif isinstance(job, SmtpJob):
        secrets += [job.password]
    else:
        secrets += [job.url, *parts_of(job.url), urlsplit(job.url).netloc.rpartition("@")[2]]
    for each in secrets:
        yield from (form for form in (each, unquote(each)) if len(form) >= SHORTEST_SECRET)


def parts_of(url: str) -> list[str]:
    """Return the parts of a URL that may be secret: user, password, each part of the path, and each value of the
    query.
    """
    try:
        parts = urlsplit(url)
        who = parts.netloc.rpartition("@")[0]
    except ValueError:
        return []
    values = [pair.partition("=")[2] for pair in parts.query.split("&")]
    return [who, *who.split(":"), *parts.path.split("/"), *values]


def retry_after(headers: dict[str, str], status: int | None, now: datetime) -> float | None:
    """Return the pause in seconds that the receiver requests in Retry-After, limited to one hour, or None."""
    value = headers.get("retry-after", "").strip()
    if status not in (429, 503) or not value:
        return None
    if value.isascii() and value.isdecimal():
        return min(float(value[:9]), MOST_RETRY_AFTER_SECONDS)
    try:
        seconds = (parsedate_to_datetime(value) - now).total_seconds()
    # A date without a zone cannot be compared.
    except (ValueError, TypeError):
        return None
    return min(max(seconds, 0.0), MOST_RETRY_AFTER_SECONDS)
