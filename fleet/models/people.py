"""Users: settings, scopes, tokens, saved views, service accounts, and stored answers of repeated requests."""

from collections.abc import Iterable, Sequence
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import CheckConstraint, F, Index, Q, UniqueConstraint, Value
from django.utils.text import capfirst

from fleet.domain.desk import LISTS
from fleet.domain.people import ADMIN, BROWSER, TOKEN_SCOPES, Right, Rights, pattern_of
from fleet.domain.pseudonyms import pseudonym
from fleet.domain.sets import PROVISIONAL
from fleet.domain.shapes import grouped
from fleet.models.fields import Line, ListOf, user_column, validate_time_zone
from fleet.models.rows import Row

SCOPE_KINDS = ("name", "service", "resource_group")
MAX_SCOPES = 50
ALLOWED_FROM = "Networks from which its calls are accepted, such as `10.0.0.0/8`; none: everywhere."


class SavedView(Row):
    """A list with filters, saved under a name. All users see a `shared` one.

    `page` is the list (`fleet.domain.desk.LISTS`), `query` the filters as in the URL.
    """

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views")
    name = Line(max_length=60)
    page = Line(choices=[(name, name) for name in LISTS])
    query = Line(max_length=2000, blank=True, default="")
    shared = models.BooleanField(default=False)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [UniqueConstraint(fields=["owner", "page", "name"], name="view_once")]
        indexes = [Index(fields=["page", "name"], name="view_shared", condition=Q(shared=True))]

    def __str__(self) -> str:
        return str(self.name)


# People: their settings and scopes, their tokens, and answers kept for repeated requests.


def validate_page_zone(name: str) -> None:
    """Raise ValidationError if the name is neither an IANA time zone nor `browser`."""
    if name != BROWSER:
        validate_time_zone(name)


Person = User | AbstractBaseUser | AnonymousUser


class Profile(Row):
    """Settings of a user. `time_zone` is an IANA name or `browser`; empty means UTC.

    `shortcuts`: keyboard shortcuts are enabled. `sound` and `notifications` (of the desktop) announce a new event to
    decide. `first_steps`: the checklist of a new installation is shown.
    """

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.CASCADE, related_name="profile"
    )
    time_zone = Line(
        max_length=100,
        blank=True,
        default="",
        validators=[validate_page_zone],
        help_text="An IANA name, `browser`, or empty for UTC.",
    )
    shortcuts = models.BooleanField(default=True)
    # A process of an earlier release writes no value for these.
    sound = models.BooleanField(default=False, db_default=False)
    notifications = models.BooleanField(default=False, db_default=False)
    first_steps = models.BooleanField(default=True, db_default=True)
    # The time up to which they have read the changes; None while never marked.
    handover_read_until = models.DateTimeField(null=True, blank=True)


class Scope(Row):
    """A limit on the sets in which a user may act. A user without scopes may act in all sets.

    With SCOPED_READ_ACCESS, the user sees only these sets. `kind` is `name`, `service` or `resource_group`. `pattern`
    may contain `*` and `?` and matches in any letter case.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="scopes")
    kind = Line(
        choices=[(kind, kind) for kind in SCOPE_KINDS],
        help_text="The property of a set that the pattern is compared with.",
    )
    pattern = Line(help_text="Without case; * is any text, ? any character.")

    class Meta:
        constraints = [
            UniqueConstraint(fields=["user", "kind", "pattern"], name="scope_once"),
            CheckConstraint(condition=Q(kind__in=list(SCOPE_KINDS)), name="scope_kind_known"),
        ]


class ScopeList(models.JSONField):
    """Field for a JSON list of distinct, sorted scopes, each as `[kind, pattern]`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"default": list, "blank": True, **kwargs})

    def deconstruct(self) -> tuple[str, str, Sequence[Any], dict[str, Any]]:
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.JSONField", args, kwargs

    def to_python(self, value: Any) -> Any:
        fields: list[Any] = [Scope._meta.get_field(name) for name in ("kind", "pattern")]
        pairs = {tuple(field.clean(text, None) for field, text in zip(fields, pair, strict=True)) for pair in value}
        return sorted([*pair] for pair in pairs)

    def validate(self, value: Any, model_instance: Any) -> None:
        if len(value) > MAX_SCOPES:
            raise ValidationError(f"Enter at most {MAX_SCOPES} scopes: use * and ? in a pattern.")

    def formfield(self, **kwargs: Any) -> Any:
        return ScopesField(label=capfirst(str(self.verbose_name)), required=False)


class ScopesField(forms.CharField):
    """Form field for scopes, one in each row, as `kind: pattern`."""

    widget = forms.Textarea({"rows": 3, "spellcheck": "false", "placeholder": "name: web*\nservice: shop"})

    def prepare_value(self, value: Any) -> Any:
        return value if isinstance(value, str | None) else "\n".join(f"{kind}: {pattern}" for kind, pattern in value)

    def clean(self, value: Any) -> Any:
        pairs = [line.partition(":") for line in super().clean(value).splitlines() if line.strip()]
        if not all(colon for _, colon, _ in pairs):
            raise ValidationError("Enter one scope per line, such as name: web* or service: shop.")
        return [[kind.strip().lower().replace(" ", "_"), pattern] for kind, _, pattern in pairs]


class ApiToken(Row):
    """A bearer token for the API: a public prefix, and the SHA-256 of a 256-bit secret.

    Calls are accepted only from the networks in `allowed_from` (empty: from everywhere). `expires_in_seconds` is not a
    column: it is input for a new token. `notified_days`: how many days before expiry the last notification was sent.
    `made_by`: the person who saw the secret; None for the command line. `made_with`: the token that created this one;
    this token ends with it.
    """

    expires_in_seconds: int
    prefix = models.TextField(unique=True)
    secret_hash = models.TextField()
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = Line("purpose", help_text="What it is for.")
    scopes = ListOf("scopes", each=Line(choices=[(one, one) for one in TOKEN_SCOPES]), help_text="What it may.")
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    # A process of an earlier release writes no value for it.
    allowed_from = ListOf(
        "allowed networks",
        each=Line(max_length=64),
        db_default=[],
        help_text=f"{ALLOWED_FROM} `10.0.0.7` is `10.0.0.7/32`; a network with bits of a host is refused.",
    )
    notified_days = models.SmallIntegerField(null=True, blank=True)
    made_by = user_column(models.SET_NULL, db_index=False)
    made_with = models.ForeignKey("self", null=True, blank=True, on_delete=models.CASCADE, related_name="made")

    class Meta:
        indexes = [Index(fields=["expires_at"], name="token_by_expiry", condition=Q(revoked_at__isnull=True))]

    def __str__(self) -> str:
        return self.name


class AccountLink(Row):
    """Records that a person controlled another account: created or owned it, knew its password or linked it to a
    provider.

    `kind` is one of `fleet.operations.control`. `until` is None while it applies. The row is retained afterwards,
    because a person who ever controlled an account can never be the second person for its proposals.
    """

    account = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    kind = models.TextField()
    since = models.DateTimeField()
    until = models.DateTimeField(null=True, blank=True)


class CalendarFeed(Row):
    """A calendar that a user's calendar program downloads from a secret URL.

    The URL contains `prefix` and a secret, of which the SHA-256 is stored. `set_pattern` (with `*` and `?`) and
    `service` restrict the calendar. It never shows more than the user may see.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="calendar_feeds")
    prefix = models.TextField(unique=True)
    secret_hash = models.TextField()
    name = Line()
    set_pattern = Line("sets", blank=True, default="", help_text="a name with * and ?; empty: every set and cache")
    service = Line(blank=True, default="", help_text="empty: every service")
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.name


class OutsideAccount(Row):
    """An account in Slack or PagerDuty (`kind`) and the linked user; `user` is None while it is not linked.

    `team` is the Slack workspace, empty for PagerDuty. `account` is the permanent id there, `name` the display name.
    `seen_at`: when the account last sent a request.
    """

    kind = models.TextField()
    team = models.TextField(blank=True, default="")
    account = models.TextField()
    name = models.TextField(blank=True, default="")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="outside_accounts"
    )
    seen_at = models.DateTimeField(null=True, blank=True)
    linked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [UniqueConstraint(fields=["kind", "team", "account"], name="outside_account_once")]


class LoginAttempts(Row):
    """Failed sign-ins since a time, and the time of the last one.

    A row counts for a username, an IP address, both together, or a username on a known device. `key` is a hash, because
    people sometimes type a password into the username field.
    """

    key = models.TextField(primary_key=True)
    count = models.IntegerField()
    since = models.DateTimeField()
    # Rows of 0.1.0 have none.
    at = models.DateTimeField(null=True)

    class Meta:
        indexes = [Index(fields=["since"], name="login_attempts_by_age")]


class KnownDevice(Row):
    """A browser in which a user has signed in before. It has a cookie with a secret; the SHA-256 is stored here."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    secret_hash = models.TextField(unique=True)
    made_at = models.DateTimeField()


class StoredAnswer(Row):
    """The answer to a request with the header `Idempotency-Key`, which is returned again if the request is repeated."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.TextField()
    # SHA-256 of method, path and body.
    request_hash = models.TextField()
    status = models.IntegerField(null=True, blank=True)
    body = models.JSONField(null=True, blank=True)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [UniqueConstraint(fields=["user", "key"], name="idempotency_key_once")]


class FormerName(Row):
    """The former name of an erased user, if timeline entries from before 0.2.0 contain it.

    `hash` is the hash of the name, by which pages recognise it; `number` is the row id of the account.
    """

    hash = models.TextField(primary_key=True)
    number = models.BigIntegerField()


def names_in_entries(person: User) -> tuple[str, ...]:
    """Return the names by which timeline entries refer to this user: the pseudonym, and the username (before 0.2.0)."""
    return (pseudonym(person.pk), person.get_username())


def rights_of(person: Person) -> Rights:
    """Return the rights and scopes of a user; empty for an account that is anonymous or inactive.

    Runs one query for each user object: the result is cached on the object, as Django caches permissions.
    """
    if not isinstance(person, User) or not person.is_active:
        return Rights()
    if person.is_superuser:
        return Rights(frozenset({ADMIN}))
    prefetch_rights([person])
    known: Rights = person._drydock_rights  # type: ignore[attr-defined]
    return known


def prefetch_rights(people: Iterable[User]) -> None:
    """Load the rights of many users with one query, so that `rights_of` needs no query for these objects."""
    unknown = [one for one in people if one.is_active and not one.is_superuser and not hasattr(one, "_drydock_rights")]
    if not unknown:
        return
    pks = {one.pk for one in unknown}
    groups = User.groups.through.objects.filter(user_id__in=pks).order_by()
    scopes = Scope.objects.filter(user_id__in=pks).order_by()
    rows = groups.values_list("user_id", Value("group"), F("group__name")).union(
        scopes.values_list("user_id", "kind", "pattern"), all=True
    )
    found = grouped((pk, (kind, text)) for pk, kind, text in rows)
    for one in unknown:
        held = sorted(found[one.pk])
        one._drydock_rights = Rights(  # type: ignore[attr-defined]
            groups=frozenset(name for kind, name in held if kind == "group"),
            scopes=tuple((kind, pattern) for kind, pattern in held if kind != "group"),
        )


def decision_filter(rights: Rights, *, proposed: Q) -> Q:
    """Return a filter for the events whose decision is for a user with these rights, as in `Rights.decides`.

    `proposed` is the filter for events that wait for a second person.
    """
    if not rights.may(Right.APPROVE):
        return Q()
    found = Q() if rights.may(Right.OVERRIDE) else ~proposed
    if ADMIN in rights.groups or not rights.scopes:
        return found
    return found & located_in(rights.scopes, of="availability_set__") & ~Q(availability_set__kind=PROVISIONAL)


def located_in(scopes: Iterable[tuple[str, str]], *, of: str = "") -> Q:
    """Return a filter for sets in one of these scopes, as in `fleet.domain.people.in_scopes`.

    `of` is the prefix of the set's columns, such as `availability_set__`.
    """
    found = Q(pk__in=[])
    for kind, text in scopes:
        column, pattern = f"{of}{kind}", pattern_of(text or "*")
        # A text that is empty lies in no scope.
        found |= Q(**{f"{column}__iregex": f"^({pattern})$"}) & ~Q(**{column: ""})
    return found


# Service accounts: accounts of a pipeline or a script, with a responsible owner.


class ServiceAccount(Row):
    """Marks a user account as a service account, which signs in only by tokens.

    `owner` is the responsible person. If it is None or may no longer sign in, the account has no responsible person.
    """

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.CASCADE, related_name="service_account"
    )
    owner = user_column(models.SET_NULL)
    purpose = Line("purpose", help_text="What it is for.")
    created_at = models.DateTimeField()


def service_of(account: object) -> ServiceAccount | None:
    """Return the service account record of this account; None for a person. Runs at most one query."""
    found: ServiceAccount | None = getattr(account, "service_account", None)
    return found
