"""The agent as a Python wheel, which machines install from their backend without a package index."""

import base64
import io
import zipfile
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

# Metadata of a wheel: https://packaging.python.org/specifications/binary-distribution-format/
WHEEL = "Wheel-Version: 1.0\nGenerator: drydock\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
# Timestamp of every file in the wheel, so that each process of the backend builds the same bytes.
LONG_AGO = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class AgentPackage:
    """A wheel of the agent: its file name, its content, and the content's SHA-256 in hexadecimal."""

    name: str
    content: bytes
    digest: str


@cache
def package() -> AgentPackage:
    """Return the wheel of the agent version that is installed with this backend."""
    about = distribution("drydock-agent")
    info = f"drydock_agent-{about.version}.dist-info"
    # Located, not imported: the backend runs nothing of the agent except its wire format.
    spec = find_spec("drydock_agent")
    source = Path(next(iter((spec and spec.submodule_search_locations) or ())))
    files = {
        f"drydock_agent/{path.relative_to(source).as_posix()}": path.read_bytes()
        for path in sorted(source.rglob("*"))
        if path.is_file() and path.suffix in (".py", ".typed")
    }
    for name in ("METADATA", "entry_points.txt", "licenses/LICENSE"):
        files[f"{info}/{name}"] = (about.read_text(name) or "").encode()
    files[f"{info}/WHEEL"] = WHEEL.encode()
    files[f"{info}/RECORD"] = _record(files, f"{info}/RECORD").encode()
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, LONG_AGO), content, zipfile.ZIP_DEFLATED)
    content = written.getvalue()
    return AgentPackage(f"drydock_agent-{about.version}-py3-none-any.whl", content, sha256(content).hexdigest())


def _record(files: dict[str, bytes], own_name: str) -> str:
    lines = []
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}")
    return "\n".join([*lines, f"{own_name},,", ""])


def requirement() -> str:
    """Return the argument of `pip install` on a machine: the wheel's URL on this backend, with its hash."""
    found = package()
    address = f"{settings.BASE_URL}{reverse('agent-package', args=[found.name])}"
    return f"drydock-agent[signed] @ {address}#sha256={found.digest}"


@require_safe
def download(request: HttpRequest, name: str) -> HttpResponse:
    """Return the wheel as a download. No sign-in is needed, because the wheel contains no secret and a machine without
    an agent has no credential.
    """
    found = package()
    if name != found.name:
        return HttpResponse(f"This backend has {found.name}.\n", status=404, content_type="text/plain")
    return HttpResponse(found.content, content_type="application/zip", headers={"X-Content-Type-Options": "nosniff"})
