"""URL patterns of notifications for API calls and pages, and panels that are added to pages of the core."""

from django.urls import path

from fleet.accounts import views as account_views
from fleet.api.urls import calls_of
from fleet.dashboard import events
from fleet.dashboard.pages import Panel, pages_of
from fleet.notifications import api, views

events.HEAD_PANELS.append(Panel("messages/told.html", views.notifications_of))
events.REPORT_PANELS.append(Panel("messages/told_line.html", views.notifications_of))
account_views.PANELS.append(Panel("messages/browsers.html", views.browsers))

CALLS = calls_of(api)
PAGES = [
    *pages_of(views),
    path("sw.js", views.service_worker, name="service-worker"),
    path("manifest.webmanifest", views.manifest, name="manifest"),
]
