"""Mail channel: one mail to each recipient through the configured SMTP server. All mails about a subject form one
thread.
"""

import time
from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP, SMTPUTF8
from email.utils import format_datetime
from html import escape
from typing import Literal
from urllib.parse import urlsplit

from django.conf import settings

from fleet.notifications.channels import KINDS, TIME_ZONE, ChannelKind, Lines, Setting
from fleet.notifications.channels.base import ChannelInUse, Delivery, Outcome, error_of
from fleet.notifications.formats import without_links
from fleet.notifications.routing import GROUP
from fleet.notifications.sender.jobs import EVERYWHERE, Answer, SendError, SmtpJob
from fleet.notifications.sender.pool import send as send_job
from fleet.notifications.text import is_command
from fleet.wording.times import one_line

KINDS["mail"] = ChannelKind(
    "Mail",
    "Needs nothing but the mail server of this installation; slow to be read.",
    "mail",
    {
        "recipients": Lines(
            each=Setting(
                pattern=r"[^\s@<>,;:\"()\\\[\]]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?",
                wrong="Enter one mail address in each line, such as oncall@example.com.",
            ),
            blank=False,
            help_text="One address a line, such as oncall@example.com.",
        ),
        "time_zone": TIME_ZONE,
    },
    personal=True,
)
# Time for all recipients of one attempt; the next attempt continues with the others.
BUDGET_SECONDS = 25.0
NO_SERVER = "no_mail_server"
SOME_REFUSED = "some_refused"
LONGEST_SUBJECT = 250


def send(post: Delivery, channel: ChannelInUse, *, now: datetime) -> Outcome:
    """Send a mail to each recipient. A retry skips recipients that an earlier attempt served or that refused
    permanently.
    """
    if not settings.EMAIL_HOST:
        return Outcome(ok=False, again=True, error=NO_SERVER)
    stored = post.references.get(GROUP, {})
    settled: dict[str, str] = dict(stored.get("told", {})) if stored.get("delivery") == post.id else {}
    began = time.monotonic()
    last = Answer(ok=True)
    for recipient in channel.values["recipients"]:
        if recipient in settled:
            continue
        if time.monotonic() - began > BUDGET_SECONDS:
            last = Answer(ok=False, error=SendError.BUSY)
            break
        last = send_job(job_of(post, recipient, now=now), now=now)
        # Other recipients may still be served if this one is refused permanently. With some statuses, the server
        # refuses the sender or its sign-in until the configuration is changed.
        never = last.status in range(500, 600) and last.status not in (530, 534, 535, 538)
        if not (last.ok or last.error is SendError.BAD_JOB or never):
            break
        settled[recipient] = "" if last.ok else f"{recipient}: {last.status or ''} {last.answer}".strip()
    status, refused = last.status, [words for words in settled.values() if words]
    if not all(recipient in settled for recipient in channel.values["recipients"]):
        told = {GROUP: {"delivery": post.id, "told": settled}}
        return Outcome(False, again=True, status=status, error=error_of(last), answer=last.answer, references=told)
    is_delivered = len(settled) > len(refused)
    error = "" if not refused else SOME_REFUSED if is_delivered else SendError.STATUS.value
    answer = "\n".join(refused) or last.answer
    return Outcome(is_delivered, status=status, error=error, answer=answer, references={GROUP: None})


def job_of(post: Delivery, recipient: str, *, now: datetime) -> SmtpJob:
    tls: Literal["none", "starttls", "tls"] = "starttls" if settings.EMAIL_USE_TLS else "none"
    return SmtpJob(
        host=settings.EMAIL_HOST,
        port=settings.EMAIL_PORT,
        tls="tls" if settings.EMAIL_USE_SSL else tls,
        user=settings.EMAIL_HOST_USER,
        password=settings.EMAIL_HOST_PASSWORD,
        sender=sender(),
        recipient=recipient,
        message=written(post, recipient, now=now),
        # The administrator configured this server: it may be at any address.
        allow=EVERYWHERE,
        limit_seconds=float(settings.EMAIL_TIMEOUT or 15),
    )


def host() -> str:
    return urlsplit(settings.BASE_URL).hostname or "localhost"


def sender() -> str:
    return settings.DEFAULT_FROM_EMAIL or f"drydock@{host()}"


def written(post: Delivery, recipient: str, *, now: datetime) -> bytes:
    """Return the mail as bytes: plain text, and HTML with paragraphs and one link."""
    mail = EmailMessage(policy=SMTP if recipient.isascii() else SMTPUTF8)
    mail["From"] = Address("Drydock", addr_spec=sender())
    mail["To"] = recipient
    mail["Subject"] = one_line(post.words.subject if post.items else post.words.title, LONGEST_SUBJECT)
    mail["Date"] = format_datetime(now)
    mail["Message-ID"] = f"<{post.id}@{host()}>"
    # Mail programs group mails that refer to the same message, even if it was never sent.
    if len({item.news.subject for item in post.items}) == 1:
        first = f"<{post.items[0].news.subject.replace(':', '.')}@{host()}>"
        mail["In-Reply-To"] = mail["References"] = first
    # Prevents automatic replies.
    mail["Auto-Submitted"] = "auto-generated"
    mail["X-Auto-Response-Suppress"] = "All"
    # Mail programs turn addresses into links; only Drydock's own may be one.
    lines = [line if is_command(line) else without_links(line) for line in post.words.lines]
    mail.set_content("\n".join([*lines, "", post.url, ""]))
    paragraphs = "\n".join(f"<p>{escape(line)}</p>" for line in lines)
    link = f'<p><a href="{escape(post.url)}">{escape(post.url)}</a></p>'
    mail.add_alternative(f"<!doctype html><html><body>{paragraphs}{link}</body></html>\n", subtype="html")
    return mail.as_bytes()
