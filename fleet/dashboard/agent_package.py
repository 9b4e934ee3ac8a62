"""The agent as a Python wheel, which machines install from their backend without a package index, and the script that
installs it on Windows.

The address of the wheel changes with each version. The requirements file has an address that never changes, for models
of scale sets and for upgrades; it states the wheel of the running backend with its hash. So do packages of the agent
for Debian and Red Hat, which a distribution of the backend built by `make dist` contains, and SHA256SUMS.
"""

import base64
import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

from django.conf import settings
from django.http import FileResponse, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.views.decorators.http import require_safe

# Metadata of a wheel: https://packaging.python.org/specifications/binary-distribution-format/
WHEEL = "Wheel-Version: 1.0\nGenerator: drydock\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
METADATA = ("METADATA", "entry_points.txt", "licenses/LICENSE")
# Timestamp of every file in the wheel, so that each process of the backend builds the same bytes.
LONG_AGO = (1980, 1, 1, 0, 0, 0)
INSTALLER = Path(__file__).with_name("windows") / "Install-DrydockAgent.ps1"
# Packages of the agent and their bills of materials, from requirements/packages.py; empty in a source tree.
PACKAGES = Path(__file__).resolve().parent.parent / "site" / "agent"
NOSNIFF = {"X-Content-Type-Options": "nosniff"}
CONTENT_TYPES = {
    ".deb": "application/vnd.debian.binary-package",
    ".rpm": "application/x-rpm",
    ".json": "application/vnd.cyclonedx+json",
}


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
    # Located, not imported: the backend runs nothing of the agent except its wire format.
    spec = find_spec("drydock_agent")
    source = Path(next(iter((spec and spec.submodule_search_locations) or ())))
    files = {f"drydock_agent/{path.relative_to(source).as_posix()}": path for path in source.rglob("*")}
    content = pack(
        about.version,
        {name: path.read_bytes() for name, path in files.items() if path.is_file() and is_packed(name)},
        {name: (about.read_text(name) or "").encode() for name in METADATA},
    )
    return AgentPackage(f"drydock_agent-{about.version}-py3-none-any.whl", content, sha256(content).hexdigest())


def is_packed(name: str) -> bool:
    """Return whether the wheel contains the file with this name."""
    return name.startswith("drydock_agent/") and name.endswith((".py", ".typed"))


def pack(version: str, files: Mapping[str, bytes], metadata: Mapping[str, bytes]) -> bytes:
    """Return a wheel of the agent with these files and this metadata by name. `make dist` builds it here, too: equal
    files are equal bytes, so that its checksum is also that of the wheel that a backend serves.
    """
    info = f"drydock_agent-{version}.dist-info"
    packed = {**files, **{f"{info}/{name}": content for name, content in metadata.items()}}
    packed[f"{info}/WHEEL"] = WHEEL.encode()
    packed = dict(sorted(packed.items()))
    packed[f"{info}/RECORD"] = _record(packed, f"{info}/RECORD").encode()
    written = io.BytesIO()
    # Not compressed, because versions of zlib compress differently.
    with zipfile.ZipFile(written, "w", zipfile.ZIP_STORED) as archive:
        for name, content in packed.items():
            archive.writestr(zipfile.ZipInfo(name, LONG_AGO), content)
    return written.getvalue()


def _record(files: dict[str, bytes], own_name: str) -> str:
    digests = {name: base64.urlsafe_b64encode(sha256(content).digest()) for name, content in files.items()}
    lines = [f"{name},sha256={digest.decode().rstrip('=')},{len(files[name])}" for name, digest in digests.items()]
    return "\n".join([*lines, f"{own_name},,", ""])


def requirement() -> str:
    """Return the argument of `pip install` on a machine: the wheel's URL on this backend, with its hash."""
    found = package()
    address = f"{settings.BASE_URL}{reverse('agent-package', args=[found.name])}"
    return f"drydock-agent[signed] @ {address}#sha256={found.digest}"


def installer() -> bytes:
    """Return the script that installs the current agent of this backend on Windows."""
    text = INSTALLER.read_text("ascii")
    for mark, value in (("@SERVER@", settings.BASE_URL), ("@PACKAGE@", requirement())):
        # Inside a literal string of PowerShell.
        text = text.replace(mark, value.replace("'", "''"))
    return text.encode()


def installer_address() -> str:
    """Return the URL of the script on this backend, with the hash of the script as its fragment."""
    return f"{settings.BASE_URL}{reverse('agent-installer')}#sha256={sha256(installer()).hexdigest()}"


@require_safe
def download_installer(request: HttpRequest) -> HttpResponse:
    """Return the script for Windows. It contains no secret."""
    headers = {**NOSNIFF, "Cache-Control": "no-cache"}
    return HttpResponse(installer(), content_type="text/plain; charset=utf-8", headers=headers)


@require_safe
def requirements(request: HttpRequest) -> HttpResponse:
    """Return the requirements file with the current agent. Intermediaries must not serve an older one."""
    return HttpResponse(f"{requirement()}\n", content_type="text/plain", headers={"Cache-Control": "no-cache"})


def packages() -> dict[str, Path]:
    """Return the files of packages by name, each followed by its bill of materials."""
    return {path.name: path for path in sorted(PACKAGES.glob("drydock-agent*"))}


@cache
def sums() -> str:
    """Return the SHA-256 of the wheel and of each package, as `sha256sum --check` reads them."""
    found = {package().name: package().digest}
    found |= {name: sha256(path.read_bytes()).hexdigest() for name, path in packages().items()}
    return "".join(f"{found[name]}  {name}\n" for name in sorted(found))


@require_safe
def download(request: HttpRequest, name: str) -> HttpResponseBase:
    """Return the wheel, a package or the sums as a download. No sign-in is needed, because they contain no secret and a
    machine without an agent has no credential.
    """
    found = package()
    if name == found.name:
        return HttpResponse(found.content, content_type="application/zip", headers=NOSNIFF)
    lasting = {**NOSNIFF, "Cache-Control": "no-cache"}
    if name == "SHA256SUMS":
        return HttpResponse(sums(), content_type="text/plain", headers=lasting)
    path = packages().get(name)
    if path is None:
        return HttpResponse(f"This backend has {found.name}.\n", status=404, content_type="text/plain")
    return FileResponse(path.open("rb"), content_type=CONTENT_TYPES[path.suffix], headers=lasting)
