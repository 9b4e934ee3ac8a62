"""Client of Azure's Instance Metadata Service.

Source: https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events (page of 2023-01-25). The first call
may take two minutes, and a response with status 200 may have an empty body. A cloud with older software rejects an
unknown api-version with 400 or 404.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from drydock_agent import wire
from drydock_agent.clock import Clock
from drydock_agent.connections import Answer, Connections, NoAnswer
from drydock_agent.metadata_service.rate_limit import OF_THIS_PROCESS, RateLimit
from drydock_agent.metadata_service.versions import (
    EVENTS_VERSIONS,
    INSTANCE_VERSIONS,
    Versions,
    is_about_version,
    newest_of,
)
from drydock_agent.version import user_agent

CONNECT_SECONDS = 2.0
# Read timeout in seconds between two pieces of a response.
READ_SECONDS = 10.0
FIRST_READ_SECONDS = 130.0
# Seconds in addition to the read timeout after which a response in many small pieces is aborted.
WHOLE_SECONDS = 20.0

# A 404 without a reason may be temporary or caused by the version. The list of versions is then read, but at most once
# in this many seconds.
LIST_VERSIONS_SECONDS = 600.0

# Keys of `compute` that every VM has, and keys whose values may be empty.
NEVER_EMPTY = ("vmId", "name", "location", "resourceGroupName", "subscriptionId", "vmSize", "osType")
MAYBE_EMPTY = (
    "zone",
    "platformFaultDomain",
    "platformUpdateDomain",
    "placementGroupId",
    "vmScaleSetName",
    "tagsList",
)

# Maximum size of a response. The backend would not accept a larger document.
LIMIT = wire.MAX_DOCUMENT_BYTES


# Statuses that Azure documents as "try again later". Any other 4xx lasts until the machine is changed.
PASSING_STATUSES = (404, 408, 410, 429)


class MetadataUnavailable(Exception):
    """There was no usable response from the metadata service. The message states the reason. `status` is None without a
    response.
    """

    def __init__(self, sentence: str, *, status: int | None = None) -> None:
        super().__init__(sentence)
        self.status = status

    @property
    def problem(self) -> str:
        """The reason as a word of `wire.metadata_text`."""
        if self.status is None:
            return wire.NO_ANSWER
        return wire.EMPTY if self.status == 200 else f"status-{self.status}"

    @property
    def is_lasting(self) -> bool:
        """True if the service rejects these calls permanently, so that more frequent calls do not help."""
        return self.status is not None and 400 <= self.status < 500 and self.status not in PASSING_STATUSES


class NoComputeMetadata(MetadataUnavailable):
    """The service responds as on a classic VM: with 404, or with a document without `compute`."""


@dataclass(slots=True, frozen=True)
class StartAnswer:
    """Response of the metadata service to a StartRequests call: status, body text, and Retry-After in seconds if
    stated.
    """

    status: int
    body: str
    retry_after: float | None = None


class Imds:
    """Client of the metadata service, for one thread. It never uses a proxy."""

    def __init__(self, url: str, *, versions: Versions | None = None, rate_limit: RateLimit = OF_THIS_PROCESS) -> None:
        self.versions = versions or Versions(EVENTS_VERSIONS, Clock())
        self._instance_versions = Versions(INSTANCE_VERSIONS, Clock())
        self._rate_limit = rate_limit
        self._url = url
        self._connections = Connections(
            headers={
                "Metadata": "true",
                "User-Agent": user_agent(),
                "Accept": "application/json",
                "Connection": "keep-alive",
            }
        )
        self.events_version = self.versions.current
        # The api-version of the last successful response; empty before the first.
        self.instance_version = ""
        self._clock = Clock()
        self._newest_listed = ""
        self._list_again_at = float("-inf")
        # Whether the last answer of `instance` states every key that Drydock reads.
        self.instance_complete = False

    def scheduled_events(self, *, first_call: bool = False) -> bytes:
        """Return the scheduled events document as received; it is never empty. With `first_call`, the timeout is
        longer. Raises `MetadataUnavailable`.
        """
        read_seconds = FIRST_READ_SECONDS if first_call else READ_SECONDS
        answer, version = self._get("scheduledevents", self.versions, read_seconds)
        if not answer.body.strip():
            raise MetadataUnavailable("the metadata service answered 200 with an empty body", status=200)
        # The version of this document. `versions` is shared and may have changed since.
        self.events_version = version
        return answer.body

    def instance(self) -> dict[str, Any]:
        """Return the object `compute` of the instance metadata; values are text, missing ones empty.
        `privateIpAddresses` adds the addresses of `network`. Afterwards, `instance_complete` states whether an empty
        value really means no value. Raises `NoComputeMetadata` on a classic VM, else `MetadataUnavailable`.
        """
        self.instance_complete = False
        answer, self.instance_version, extended = self._instance()
        try:
            content = json.loads(answer.body.decode("utf-8-sig"), strict=False)
        except (ValueError, RecursionError):
            content = None
        # Another service at this address may answer 200 with an error.
        if isinstance(content, dict) and "compute" not in content and "error" not in content:
            raise NoComputeMetadata("the instance metadata has no part compute", status=200)
        compute = content.get("compute") if isinstance(content, dict) else None
        if not isinstance(compute, dict):
            raise MetadataUnavailable("the instance metadata cannot be read", status=200)
        self.instance_complete = extended and _is_complete(compute)
        found = _private_addresses(content.get("network"))
        return compute | {"privateIpAddresses": found} if found else compute

    def _instance(self) -> tuple[Answer, str, bool]:
        """Request the instance metadata. Return the response, its api-version, and whether it is the extended form;
        other forms may omit values.
        """
        try:
            return *self._get("instance", self._instance_versions, READ_SECONDS, "&extended=true"), True
        except MetadataUnavailable as error:
            if error.status == 404:
                raise NoComputeMetadata(str(error), status=404) from error
            if error.status != 400:
                raise
        return *self._get("instance", self._instance_versions, READ_SECONDS), False

    def attested(self, nonce: str) -> str:
        """Return the attested document for this nonce, as PKCS #7 in base64. Raises `MetadataUnavailable`."""
        answer, _ = self._get("attested/document", self._instance_versions, READ_SECONDS, f"&nonce={nonce}")
        try:
            content = json.loads(answer.body)
        except (ValueError, RecursionError):
            content = None
        signature = content.get("signature") if isinstance(content, dict) else None
        if not isinstance(signature, str) or not 0 < len(signature) <= 2 * wire.MAX_ATTESTED_BYTES:
            raise MetadataUnavailable("the attested document cannot be read", status=200)
        return signature

    def start(self, event_id: str) -> StartAnswer:
        """Approve an event: POST StartRequests with the event id as the document spells it. Raises `NoAnswer`."""
        body = json.dumps({"StartRequests": [{"EventId": event_id}]}).encode()
        while True:
            version = self.versions.current
            self._rate_limit.wait()
            answer = self._connections.send(
                "POST",
                f"{self._url}/metadata/scheduledevents?api-version={version}",
                timeout=(CONNECT_SECONDS, READ_SECONDS),
                whole=READ_SECONDS + WHOLE_SECONDS,
                limit=LIMIT,
                headers={"Content-Type": "application/json"},
                body=body,
            )
            if not self._steps_down(self.versions, version, "POST", answer):
                seconds = answer.headers.get("Retry-After", "")
                return StartAnswer(
                    answer.status,
                    answer.body.decode("utf-8", "replace"),
                    # The form with a date is not used here.
                    retry_after=float(seconds) if seconds.isdecimal() else None,
                )

    def cut_if_overdue(self) -> None:
        """Abort the current call if it has taken too long. Another thread calls this periodically."""
        self._connections.cut_if_overdue()

    def interrupt(self) -> None:
        """Abort the current call. May be called from any thread."""
        self._connections.interrupt()

    def close(self) -> None:
        """Close the connection."""
        self._connections.close()

    def _get(self, what: str, versions: Versions, read_seconds: float, more: str = "") -> tuple[Answer, str]:
        while True:
            version = versions.current
            self._rate_limit.wait()
            try:
                answer = self._connections.send(
                    "GET",
                    f"{self._url}/metadata/{what}?api-version={version}{more}",
                    timeout=(CONNECT_SECONDS, read_seconds),
                    whole=read_seconds + WHOLE_SECONDS,
                    limit=LIMIT,
                    # A body that is too long is cut at the limit, and is then not a valid document.
                    cut=versions is self.versions,
                )
            except NoAnswer as error:
                raise MetadataUnavailable(f"the metadata service does not answer: {error}") from error
            if answer.status == 200:
                return answer, version
            if self._steps_down(versions, version, "GET", answer):
                continue
            raise MetadataUnavailable(f"the metadata service answered {answer.status}", status=answer.status)

    def _steps_down(self, versions: Versions, version: str, method: str, answer: Answer) -> bool:
        """Return whether this response rejects the api-version and there is another one to try."""
        if is_about_version(method, answer.status, answer.body):
            return versions.refused(version, answer.body)
        if answer.status != 404:
            return False
        newest = self._newest_version()
        return bool(newest) and newest < version and versions.refused(version, answer.body, newest=newest)

    def _newest_version(self) -> str:
        """Return the newest api-version that the service lists, or an empty string. Queries the service at most once in
        ten minutes.
        """
        if self._clock.monotonic() >= self._list_again_at:
            self._list_again_at = self._clock.monotonic() + LIST_VERSIONS_SECONDS
            self._rate_limit.wait()
            with suppress(NoAnswer):
                answer = self._connections.send(
                    "GET",
                    f"{self._url}/metadata/versions",
                    timeout=(CONNECT_SECONDS, READ_SECONDS),
                    whole=READ_SECONDS + WHOLE_SECONDS,
                    limit=LIMIT,
                )
                self._newest_listed = newest_of(answer.body) if answer.status == 200 else ""
        return self._newest_listed


def _is_complete(compute: dict[str, Any]) -> bool:
    """Return whether the metadata has all keys that Drydock reads, and values for those keys that no VM lacks."""
    if any(name not in compute for name in MAYBE_EMPTY):
        return False
    return all(isinstance(compute.get(name), str) and compute[name].strip() for name in NEVER_EMPTY)


def _private_addresses(network: Any) -> list[str]:
    """Return all private IPv4 and IPv6 addresses in the metadata. Parts in an unknown form are ignored."""
    found = []
    interfaces = network.get("interface") if isinstance(network, dict) else None
    for interface in interfaces if isinstance(interfaces, list) else ():
        for version in ("ipv4", "ipv6"):
            part = interface.get(version) if isinstance(interface, dict) else None
            listed = part.get("ipAddress") if isinstance(part, dict) else None
            for each in listed if isinstance(listed, list) else ():
                address = each.get("privateIpAddress") if isinstance(each, dict) else None
                if isinstance(address, str) and address:
                    found.append(address[:64])
    return found[:64]
