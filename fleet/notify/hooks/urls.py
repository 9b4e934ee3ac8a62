"""Addresses of the hooks; each names a channel by its row id."""

from django.urls import path

from fleet.notify.hooks import pagerduty, slack

urlpatterns = [
    path("slack/<int:channel>/", slack.interactivity, name="hook-slack"),
    path("pagerduty/<int:channel>/", pagerduty.webhook, name="hook-pagerduty"),
]
