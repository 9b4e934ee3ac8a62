"""Addresses."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from fleet.api.views.calendar import feed

urlpatterns = [
    path("api/", include("fleet.api.urls")),
    path("calendar/<str:token>.ics", feed, name="calendar"),
    path("hooks/", include("fleet.notify.hooks.urls")),
    # One door: the admin's own form would let people guess passwords without end.
    path("admin/login/", RedirectView.as_view(pattern_name="login", query_string=True)),
    path("admin/", admin.site.urls),
    path("", include("fleet.dashboard.urls")),
]

handler400 = "fleet.dashboard.failures.unreadable"
handler404 = "fleet.dashboard.failures.not_found"
handler500 = "fleet.dashboard.failures.failed"
