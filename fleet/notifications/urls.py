"""URL patterns of notifications for API calls and pages, and panels that are added to pages of the core."""

from django.urls import path

from fleet.accounts import views as account_views
from fleet.api.routes import calls_of
from fleet.dashboard import events
from fleet.dashboard.pages import Panel
from fleet.notifications import api, views

events.HEAD_PANELS.append(Panel("messages/told.html", views.notifications_of))
events.REPORT_PANELS.append(Panel("messages/told_line.html", views.notifications_of))
account_views.PANELS.append(Panel("messages/browsers.html", views.browsers))

CALLS = calls_of(api)
PAGES = [
    path("messages/", views.overview, name="messages"),
    path("messages/log/", views.sent_list, name="message-log"),
    path("messages/log/unsent/", views.unsent_list, name="message-unsent"),
    path("messages/log/<uuid:delivery_id>/", views.delivery_page, name="delivery"),
    path("messages/log/<uuid:delivery_id>/again/", views.delivery_again, name="delivery-again"),
    path("channels/new/<slug:kind>/", views.channel_new, name="channel-new"),
    path("channels/<int:channel_id>/", views.channel_page, name="channel"),
    path("channels/<int:channel_id>/switch/", views.channel_switch, name="channel-switch"),
    path("channels/<int:channel_id>/test/", views.channel_test, name="channel-test"),
    path("channels/<int:channel_id>/rotate/", views.channel_rotate, name="channel-rotate"),
    path("channels/<int:channel_id>/delete/", views.channel_delete, name="channel-delete"),
    path("routes/new/", views.route_new, name="route-new"),
    path("routes/<int:route_id>/", views.route_page, name="route"),
    path("routes/<int:route_id>/switch/", views.route_switch, name="route-switch"),
    path("routes/<int:route_id>/delete/", views.route_delete, name="route-delete"),
    path("you/messages/", views.own, name="you-messages"),
    path("you/browser/", views.tell_browser, name="browser-tell"),
    path("you/browser/key/", views.push_key, name="browser-key"),
    path("you/browser/<int:channel_id>/end/", views.end_browser, name="browser-end"),
    path("sw.js", views.service_worker, name="service-worker"),
    path("manifest.webmanifest", views.manifest, name="manifest"),
]
