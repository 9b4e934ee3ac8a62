"""Waves: several events of one service, approved in turn."""

from django.conf import settings
from django.db import models

from fleet.domain.due import AT_ONCE
from fleet.domain.waves import WaveState
from fleet.models.changes import ChangeColumn


class Wave(ChangeColumn):
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
    # When time alone may change it; news of its events is found by them.
    look_at = models.DateTimeField(default=AT_ONCE, db_default=AT_ONCE)

    class Meta:
        indexes = [
            models.Index(fields=["look_at"], name="wave_by_look", condition=models.Q(state=WaveState.RUNNING.value)),
        ]

    def __str__(self) -> str:
        return f"wave {self.pk}"
