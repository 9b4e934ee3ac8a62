"""Rejections of requests to the metadata service on any path, with Azure's response bodies."""

from __future__ import annotations

from azure_simulator import instance
from azure_simulator.documents import encoded
from azure_simulator.http import Request, Response

# Exactly the bytes that Azure sends.
NO_HEADER = b'{ "error": "Bad request: . Required metadata header not specified" }'
BAD_VERSION_TEXT = (
    "Bad request. api-version is invalid or was not specified in the request. For more information refer to "
    "aka.ms/azureimds"
)
BAD_VERSION = encoded({"error": BAD_VERSION_TEXT, "newest-versions": list(instance.VERSIONS[:-4:-1])})


def error(status: int, text: str) -> Response:
    return Response(status, encoded({"error": text}))


def parameters(request: Request) -> list[tuple[str, str]]:
    """Return names (in lower case) and values of the query."""
    return [(name.lower(), value) for name, value in request.query]


def refused(request: Request, *, enforce_header: bool) -> Response | None:
    """Return the rejection of an invalid request, or None if it is valid. With `enforce_header`, the header `Metadata`
    is required.
    """
    if "x-forwarded-for" in request.headers:
        return error(400, "Bad request. X-Forwarded-For header is not allowed")
    if enforce_header and request.headers.get("metadata", "").lower() != "true":
        return Response(400, NO_HEADER)
    names = [name for name, _ in parameters(request)]
    if len(names) != len(set(names)):
        return error(400, "Bad request. A query parameter was given more than once")
    return None
