"""The baseline: what one writes first with Django REST framework, a serializer and get_or_create.

Same tables, same credential, same answer after the commit; but it merges nothing, knows no presence, and writes no
timeline.
"""

from __future__ import annotations

import hashlib
from typing import Any, cast

from django.core.wsgi import get_wsgi_application
from django.db import transaction
from django.urls import path
from django.utils import timezone
from rest_framework import authentication, serializers
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

application = get_wsgi_application()

from fleet.models import DocumentBody, Machine, Observation  # noqa: E402


class Agent:
    """The machine that calls, as REST framework wants a user."""

    is_authenticated = True

    def __init__(self, machine: Machine) -> None:
        self.machine = machine


class CredentialAuthentication(authentication.BaseAuthentication):
    """`Authorization: Bearer <credential>`."""

    def authenticate(self, request: Request) -> tuple[Agent, None]:
        credential = request.headers.get("Authorization", "").removeprefix("Bearer ")
        digest = hashlib.sha256(credential.encode()).hexdigest()
        machine = Machine.objects.filter(credential_hash=digest, revoked_at__isnull=True).first()
        if machine is None:
            raise AuthenticationFailed
        return Agent(machine), None


class DataSerializer(serializers.Serializer[Any]):
    body = serializers.CharField()
    hash = serializers.CharField()
    incarnation = serializers.IntegerField()


class ReportSerializer(serializers.Serializer[Any]):
    seq = serializers.IntegerField(min_value=1)
    kind = serializers.CharField()
    at = serializers.DateTimeField()
    # The stubs know the property of this name.
    data = DataSerializer()  # type: ignore[assignment]


class BatchSerializer(serializers.Serializer[Any]):
    spool = serializers.CharField()
    sent_at = serializers.DateTimeField()
    last_poll_at = serializers.DateTimeField()
    reports = ReportSerializer(many=True)


class Reports(APIView):
    """One batch in one transaction."""

    authentication_classes = (CredentialAuthentication,)
    permission_classes = (IsAuthenticated,)

    def post(self, request: Request) -> Response:
        batch = BatchSerializer(data=request.data)
        batch.is_valid(raise_exception=True)
        now, acknowledged = timezone.now(), 0
        with transaction.atomic():
            for report in batch.validated_data["reports"]:
                data = report["data"]
                document, _ = DocumentBody.objects.get_or_create(
                    hash=data["hash"],
                    defaults={"body": data["body"].encode(), "readable": True, "first_received_at": now},
                )
                Observation.objects.get_or_create(
                    machine=cast(Any, request.user).machine,
                    epoch=1,
                    seq=report["seq"],
                    defaults={
                        "kind": report["kind"],
                        "at": report["at"],
                        "machine_at": report["at"],
                        "received_at": now,
                        "document": document,
                        "incarnation": data["incarnation"],
                    },
                )
                acknowledged = report["seq"]
        return Response({"acknowledged": acknowledged, "server_time": now, "refused": [], "orders": []})


urlpatterns = [path("agent/v1/reports", Reports.as_view())]
