"""Addresses."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("api/", include("fleet.api.urls")),
    path("admin/", admin.site.urls),
    path("", include("fleet.dashboard.urls")),
]

handler404 = "fleet.dashboard.decisions.not_found"
