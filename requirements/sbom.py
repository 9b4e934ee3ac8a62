"""Software bills of materials in CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from email.message import Message
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

Component = dict[str, Any]


def library(about: Message, *, file_name: str = "", digest: str = "") -> Component:
    """Return the component of a Python distribution from its metadata; with its wheel, if there is one."""
    name, version = str(about["Name"]), str(about["Version"])
    qualifier = f"?file_name={quote(file_name)}" if file_name else ""
    purl = f"pkg:pypi/{name.lower().replace('_', '-')}@{quote(version)}{qualifier}"
    found: Component = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if digest:
        found["hashes"] = [{"alg": "SHA-256", "content": digest}]
    if about["License-Expression"]:
        found["licenses"] = [{"expression": str(about["License-Expression"])}]
    return found


def debian_package(fields: Mapping[str, str], distribution: str) -> Component:
    """Return the component of an installed Debian package: `Package`, `Version`, `Architecture`."""
    name, version = fields["Package"], fields["Version"]
    purl = f"pkg:deb/{distribution}/{quote(name, safe='')}@{quote(version)}?arch={fields['Architecture']}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def program(name: str, version: str, path: Path) -> Component:
    """Return the component of a program of one file, with its hash."""
    purl = f"pkg:generic/{name}@{quote(version)}"
    hashes = [{"alg": "SHA-256", "content": sha256(path.read_bytes()).hexdigest()}]
    return {
        "type": "application", "bom-ref": purl, "name": name, "version": version, "purl": purl, "hashes": hashes,
    }  # fmt: skip


def document(*, name: str, version: str, kind: str, components: Iterable[Component]) -> str:
    """Return the bill of `name` as JSON: the same text for the same content. `kind` is a type of CycloneDX."""
    found = sorted(components, key=lambda component: str(component["bom-ref"]))
    about = {"type": kind, "bom-ref": name, "name": name, "version": version}
    content = json.dumps([about, found])
    parts = [{"ref": name, "dependsOn": [component["bom-ref"] for component in found]}]
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {"component": about},
        "components": found,
        "dependencies": parts,
    }
    return json.dumps(bill, indent=1) + "\n"
