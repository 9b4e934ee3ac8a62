"""Alertmanager: an alert for all that is open, and silences for what is under maintenance.

Whatever it is told ends by itself soon after Drydock has fallen silent; so each round tells all of it again.
"""

from dataclasses import replace
from datetime import datetime

from fleet.notify.channels.alertmanager.alerts import tell_alerts
from fleet.notify.channels.alertmanager.client import Alertmanager
from fleet.notify.channels.alertmanager.silences import Preview, previews, tell_silences
from fleet.notify.channels.base import ChannelInUse, Outcome, Post
from fleet.projections.messages import open as opened

__all__ = ["Preview", "mirror", "preview", "send"]


def mirror(channel: ChannelInUse, *, now: datetime) -> Outcome:
    """One round: every alert renewed or ended, every silence begun, renewed or ended as far as there is time."""
    alertmanager = Alertmanager(channel, now=now)
    things, kept = opened.open_things(), opened.kept(channel.id)
    alerts = tell_alerts(alertmanager, things, kept, now=now)
    if not alerts.ok:
        return alerts
    silences = tell_silences(alertmanager, channel.values, things, {**kept, **alerts.references}, now=now)
    return replace(silences, references={**alerts.references, **silences.references})


def send(post: Post, channel: ChannelInUse, *, now: datetime) -> Outcome:
    """A try: whether it is an Alertmanager that answers. It gets no posts."""
    return Alertmanager(channel, now=now).call("GET", "/status").outcome


def preview(channel: ChannelInUse, *, now: datetime) -> tuple[Preview, ...]:
    """What the silences of a channel would hit now if every machine or cache that they hold for were under
    maintenance: a try that changes nothing.
    """
    return previews(Alertmanager(channel, now=now), channel.values, now=now)
