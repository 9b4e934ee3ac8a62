"""Django's admin site. Only users can be changed there; everything else is read-only.

Other objects are changed only by operations, which write the change and its timeline entry in one transaction.
"""

from typing import Any

# Registered with the admin by being imported: first here, so that they can be taken off again.
from allauth.account import admin as accounts_elsewhere  # noqa: F401
from allauth.account.models import EmailAddress
from allauth.mfa import admin as second_factors  # noqa: F401
from allauth.mfa.models import Authenticator
from allauth.socialaccount import admin as sign_on  # noqa: F401
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import BinaryField, Model, QuerySet
from django.http import HttpRequest, HttpResponse

from fleet.accounts import services as account_services
from fleet.accounts import sessions
from fleet.domain import actor
from fleet.operations import clock


def never(self: Any, request: HttpRequest, obj: Model | None = None) -> bool:
    """Return that no user has this permission."""
    return False


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Read-only admin page. It shows no row counts, because counting large tables is slow."""

    show_full_result_count = False

    has_add_permission = has_change_permission = has_delete_permission = never

    def get_exclude(self, request: HttpRequest, obj: Model | None = None) -> list[str]:
        """Return the fields to hide: hashes of secrets, and raw bodies, which have their own page."""
        return [
            field.name
            for field in self.model._meta.get_fields()
            if field.name in {"secret_hash", "credential_hash", "secrets"} or isinstance(field, BinaryField)
        ]


class PeopleAdmin(UserAdmin):  # type: ignore[type-arg]
    """Admin page of users. A change writes the same timeline entry as the user's page in Drydock. Accounts cannot be
    deleted, because timeline entries refer to them.
    """

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        """Return users without service accounts, so that a service account cannot get a password here."""
        found: QuerySet[User] = super().get_queryset(request).filter(service_account=None)
        return found

    has_delete_permission = never

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        request.META["drydock.before"] = account_services.shown(User.objects.get(pk=obj.pk)) if change else None
        super().save_model(request, obj, form, change)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        assert isinstance(request.user, User)  # noqa: S101
        account_services.note_change(
            User.objects.get(pk=form.instance.pk),
            before=request.META["drydock.before"],
            actor=actor.person(request.user, "page"),
            now=clock.now(),
        )

    @transaction.atomic
    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:  # noqa: A002
        key = str(request.session.session_key)
        before = User.objects.filter(pk=id).values_list("password", flat=True).first() if id.isdigit() else None
        answer = super().user_change_password(request, id, form_url)
        changed = User.objects.filter(pk=id).exclude(password=before).first() if before is not None else None
        if changed is not None and isinstance(request.user, User):
            own = changed.pk == request.user.pk
            if own and request.session.session_key:
                sessions.moved(old_key=key, new_key=request.session.session_key)
            but = str(request.session.session_key) if own else ""
            account_services.record_password_change(
                changed, now=clock.now(), actor=actor.person(request.user, "page"), but=but
            )
        return answer


# Pages and commands of ours change them, with a line on the timeline; some of their columns are secrets.
admin.site.unregister([Authenticator, EmailAddress, SocialAccount, SocialApp, SocialToken])
admin.site.unregister(User)
admin.site.register(User, PeopleAdmin)
# Roles: renaming or deleting one would remove rights from every member, without a timeline entry.
admin.site.unregister(Group)
admin.site.register(Group, ReadOnlyAdmin)

for model in apps.get_app_config("fleet").get_models():
    admin.site.register(model, ReadOnlyAdmin)

admin.site.site_header = "Drydock"
admin.site.site_title = "Drydock"
admin.site.index_title = "People"
