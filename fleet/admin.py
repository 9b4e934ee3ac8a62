"""Django's admin: it changes users and groups, and shows the rest.

Everything else is written by operations only, because a change and its timeline entry are one transaction.
"""

from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.contrib import admin
from django.db.models import BinaryField, Model
from django.http import HttpRequest

if TYPE_CHECKING:
    AnyModelAdmin = admin.ModelAdmin[Any]
else:
    # Django's own class takes no type argument at run time.
    AnyModelAdmin = admin.ModelAdmin


class ReadOnlyAdmin(AnyModelAdmin):
    """Looks, does not touch. Without counts: the tables are large."""

    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def get_exclude(self, request: HttpRequest, obj: Model | None = None) -> list[str]:
        """Hashes of secrets are nobody's reading; raw bodies have their own page."""
        return [
            field.name
            for field in self.model._meta.get_fields()
            if field.name in {"secret_hash", "credential_hash"} or isinstance(field, BinaryField)
        ]


for model in apps.get_app_config("fleet").get_models():
    admin.site.register(model, ReadOnlyAdmin)

admin.site.site_header = "Drydock"
admin.site.site_title = "Drydock"
admin.site.index_title = "People"
