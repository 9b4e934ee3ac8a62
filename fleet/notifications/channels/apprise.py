"""Apprise channel: sends the same text to any service that Apprise supports, by a single URL."""

from datetime import datetime
from typing import Literal

from fleet.domain.event_types import Severity
from fleet.notifications.channels import KINDS, TIME_ZONE, ChannelKind, Setting
from fleet.notifications.channels.base import ChannelInUse, Delivery, Outcome, outcome_of
from fleet.notifications.sender.jobs import AppriseJob
from fleet.notifications.sender.pool import send as send_job
from fleet.notifications.text import is_command

KINDS["apprise"] = ChannelKind(
    "Teams, ntfy, Telegram and others",
    "Any of some hundred services, by an address in the form of Apprise.",
    "message-circle",
    {
        "url": Setting(
            "Apprise address",
            pattern=r"[A-Za-z][A-Za-z0-9+.-]*://\S+",
            wrong="Enter an address as Apprise has it, such as ntfys://ntfy.sh/topic.",
            help_text="It states the service and its credentials, such as ntfys://ntfy.sh/my-topic.",
        ),
        "time_zone": TIME_ZONE,
    },
    secrets=frozenset({"url"}),
    personal=True,
)
Tone = Literal["info", "success", "warning", "failure"]
TONES: dict[str, Tone] = {Severity.CRITICAL: "failure", Severity.WARNING: "warning", Severity.INFO: "info"}


def send(post: Delivery, channel: ChannelInUse, *, now: datetime) -> Outcome:
    """Send one delivery. Apprise determines from the service's response whether it was accepted."""
    job = AppriseJob(
        url=str(channel.values["url"]),
        title=post.words.title,
        # The first line is the same as the title.
        body="\n".join(line for line in post.words.lines[1:] if not is_command(line)),
        verbatim="\n".join([*filter(is_command, post.words.lines[1:]), post.url]),
        tone=tone_of(post),
    )
    return outcome_of(send_job(job, now=now))


def tone_of(post: Delivery) -> Tone:
    """Return Apprise's message type for a delivery: the worst severity of its messages, or success for an ended
    event.
    """
    tones = ["success" if item.news.moment.declared.ends else TONES[item.news.severity] for item in post.items]
    order: tuple[Tone, ...] = ("failure", "warning", "info", "success")
    return next((tone for tone in order if tone in tones), "info")
