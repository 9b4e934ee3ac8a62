"""Waves: several events of one service, approved in turn."""

from django.conf import settings
from django.db import models


class Wave(models.Model):
    """Several events approved one after the other; its approvals carry `wave` and `turn`.

    `state` is one of `fleet.domain.waves.WaveState`; `reason` says in one sentence why it stopped.
    """

    service = models.TextField(blank=True, default="")
    state = models.TextField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    via = models.TextField()
    token_name = models.TextField(blank=True, default="")
    comment = models.TextField(blank=True, default="")
    created_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True, blank=True)
    reason = models.TextField(blank=True, default="")

    def __str__(self) -> str:
        return f"wave {self.pk}"
