"""Responses of the metadata service for all paths except scheduled events."""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from datetime import datetime

from azure_simulator import attestation, instance, load_balancer
from azure_simulator.documents import encoded
from azure_simulator.fleet import Machine, MachineSet
from azure_simulator.http import Answer, Response
from azure_simulator.refusals import BAD_VERSION, error

INSTANCE = "/metadata/instance"
ATTESTED = "/metadata/attested/document"
LOAD_BALANCER = "/metadata/loadbalancer"
VERSIONS = "/metadata/versions"
IDENTITY = "/metadata/identity/oauth2/token"
VALID_SECONDS = 86_400
# From here on each has the same form.
_OLDEST_VERSION = "2018-02-01"
_NAMESPACE = uuid.UUID("1b0e4a0c-7d5a-4f7e-8f43-64c3b2b9d6b1")


class Answers:
    """Creates the responses to valid requests: GET, with the required header and without repeated parameters."""

    def __init__(self, authority: attestation.Authority) -> None:
        self._authority = authority

    def answer(
        self,
        in_set: MachineSet,
        machine: Machine,
        path: str,
        parameters: dict[str, str],
        now: datetime,
        forged: str = "",
    ) -> Answer:
        """Return the response for a path, which must be in lower case. `forged` makes an attested document invalid in
        one of the ways that `attestation` lists.
        """
        version = parameters.get("api-version", "")
        if path == VERSIONS:
            return Response(200, encoded({"apiVersions": list(instance.VERSIONS)}))
        if path == LOAD_BALANCER:
            return _load_balancer(in_set, machine, version)
        if path == IDENTITY:
            return _token(machine, parameters, now)
        if path == ATTESTED:
            return self._attested(in_set, machine, version, parameters.get("nonce", ""), now, forged)
        if path == INSTANCE or path.startswith(INSTANCE + "/"):
            return _instance(in_set, machine, path, version, parameters.get("format", "json").lower())
        return error(404, "Not found")

    def _attested(
        self, in_set: MachineSet, machine: Machine, version: str, nonce: str, now: datetime, forged: str
    ) -> Answer:
        if version not in attestation.VERSIONS:
            return Response(400, BAD_VERSION)
        if nonce and not attestation.NONCE.fullmatch(nonce):
            return error(400, "Bad request. nonce is a string of up to 32 alphanumeric characters")
        signed = attestation.forged(attestation.content(in_set, machine, version, nonce, now), forged, now)
        return self._signed(signed, machine.location, now, forged)

    async def _signed(self, content: dict[str, object], location: str, now: datetime, forged: str) -> Response:
        try:
            # The first one takes a while: there are keys to be made.
            document = await asyncio.to_thread(self._authority.document, content, location, now, forged)
        except attestation.UnavailableError as unavailable:
            return error(503, str(unavailable))
        return Response(200, encoded(document))


def _token(machine: Machine, parameters: dict[str, str], now: datetime) -> Response:
    """Return a token of a managed identity, which no service accepts. Source: "How managed identities for Azure
    resources work with Azure virtual machines", Microsoft, 2025.
    """
    resource, client_id = parameters.get("resource", ""), parameters.get("client_id", "")
    if parameters.get("api-version", "") < _OLDEST_VERSION:
        return _no_token("invalid_request", "Required query variable 'api-version' is missing")
    if not resource:
        return _no_token("invalid_resource", "AADSTS500011: The resource principal named was not found")
    found = [identity for identity in machine.identities if client_id.lower() in ("", identity.lower())]
    if not found:
        return _no_token("invalid_request", "Identity not found")
    if len(found) > 1:
        return _no_token("invalid_request", "Multiple user assigned identities exist, please specify the clientId")
    expires = int(now.timestamp()) + VALID_SECONDS
    claims = {"aud": resource, "appid": found[0], "oid": str(uuid.uuid5(_NAMESPACE, found[0])), "exp": expires}
    parts = [json.dumps(part).encode() for part in ({"alg": "none", "typ": "JWT"}, claims)]
    text = ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)
    return Response(
        200,
        encoded(
            {
                "access_token": f"{text}.simulated",
                "client_id": found[0],
                "expires_in": str(VALID_SECONDS),
                "expires_on": str(expires),
                "ext_expires_in": str(VALID_SECONDS),
                "not_before": str(int(now.timestamp()) - 300),
                "resource": resource,
                "token_type": "Bearer",
            }
        ),
    )


def _no_token(code: str, description: str) -> Response:
    return Response(400, encoded({"error": code, "error_description": description}))


def _load_balancer(in_set: MachineSet, machine: Machine, version: str) -> Response:
    if version not in load_balancer.VERSIONS:
        return Response(400, BAD_VERSION)
    if in_set.load_balancer is None:
        return error(404, load_balancer.NONE)
    return Response(200, encoded(load_balancer.content(in_set.load_balancer, machine)))


def _instance(in_set: MachineSet, machine: Machine, path: str, version: str, wanted: str) -> Response:
    if version not in instance.VERSIONS:
        return Response(400, BAD_VERSION)
    steps = [step for step in path.removeprefix(INSTANCE).split("/") if step]
    try:
        part = instance.leaf(instance.instance(in_set, machine, version), steps)
    except KeyError:
        return error(404, "Not found")
    if wanted == "text":
        return Response(200, instance.as_text(part).encode(), "text/plain; charset=utf-8")
    if wanted != "json" or isinstance(part, str):
        return error(400, "Bad request. A leaf is to be had as text only: say format=text")
    return Response(200, encoded(part))
