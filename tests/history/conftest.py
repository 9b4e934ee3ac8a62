"""The same people and fleet as the pages'."""

from tests.dashboard.conftest import admin, fleet, operator, viewer

__all__ = ["admin", "fleet", "operator", "viewer"]
