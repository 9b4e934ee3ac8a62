"""A stand-in for Azure Blob Storage, strict about what its documentation asks for, as wicked as a test wants it.

Put Blob, Get Blob: https://learn.microsoft.com/rest/api/storageservices/put-blob and get-blob.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

from tests.receivers import Handler, serving

SIGNATURE = "Zm9vYmFy%2Bc2VjcmV0%3D"
KEY = f"sv=2021-12-02&sr=c&sp=rc&sig={SIGNATURE}"
# What it does instead of its work, and the code of the fault that a client has to report.
REFUSALS = {"deny": "store-refused", "full": "store-full", "redirect": "store-elsewhere"}
REFUSALS |= dict.fromkeys(("break", "hang"), "store-away")


class BlobService:
    """`blobs` by path. `wicked` says what to do instead: `deny`, `full`, `redirect`, `lose`, `spoil`, `hang`,
    `trickle` or `break`.
    """

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.wicked = ""
        self.asked: list[tuple[str, str]] = []
        self.strange: list[str] = []
        self.released = threading.Event()
        self.port = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/devstoreaccount1/drydock/eu?{KEY}"


class BlobHandler(Handler):
    service: BlobService

    def checked(self) -> bool:
        """Whether a client may continue it like any blob."""
        parts = urlsplit(self.path)
        self.service.asked.append((self.command, parts.path))
        query = parse_qs(parts.query)
        signed = query.get("sig") == ["Zm9vYmFy+c2VjcmV0="] and query.get("sv") == ["2021-12-02"]
        if not self.headers.get("x-ms-version") or self.headers.get("Transfer-Encoding"):
            self.service.strange.append(f"{self.command}: {dict(self.headers)}")
        wicked = self.service.wicked
        if wicked in ("hang", "break"):
            self.service.released.wait(30 if wicked == "hang" else 0)
            self.close_connection = True
            return False
        status = {"redirect": 307, "full": 507, "deny": 403}.get(wicked, 0 if signed else 403)
        if status:
            headers = {"Location": "http://169.254.169.254/metadata/instance"} if status == 307 else None
            self.answer(status, headers=headers)
        return not status

    def take(self) -> None:
        content = self.body()
        if self.checked():
            {"PUT": self.put, "GET": self.get, "HEAD": self.get}[self.command](content)

    def put(self, content: bytes) -> None:
        path = urlsplit(self.path).path
        if self.headers.get("x-ms-blob-type") != "BlockBlob":
            self.answer(400)
        elif self.headers.get("If-None-Match") == "*" and path in self.service.blobs:
            # With a signature that may create and not write.
            self.answer(403)
        else:
            if self.service.wicked != "lose":
                spoilt = bytes([*content[:-5], content[-5] ^ 1, *content[-4:]])
                self.service.blobs[path] = spoilt if self.service.wicked == "spoil" else content
            self.answer(201)

    def get(self, _: bytes) -> None:
        content = self.service.blobs.get(urlsplit(self.path).path)
        if content is None:
            self.answer(404)
        elif self.command == "HEAD":
            self.answer(200)
        elif self.service.wicked == "trickle":
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            for byte in content:
                if self.service.released.wait(0.02):
                    break
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
        else:
            self.answer(200, content)


@contextmanager
def blob_service() -> Iterator[BlobService]:
    service = BlobService()
    with serving(type("Bound", (BlobHandler,), {"service": service})) as url:
        service.port = urlsplit(url).port or 0
        try:
            yield service
        finally:
            service.released.set()
