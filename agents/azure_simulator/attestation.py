"""Attested documents (`/metadata/attested/document`), which prove a machine's identity. They are signed by a
certificate authority that the simulator creates.

Sources: "Attested data" on Microsoft's page "Azure Instance Metadata Service for virtual machines" (04/11/2023), the
sample there, and the API definition (`nonce`: up to 32 alphanumeric characters; the page says ten digits).
"""

from __future__ import annotations

import base64
import functools
import importlib
import re
import threading
import uuid
from datetime import datetime, timedelta
from typing import Any

from azure_simulator import instance
from azure_simulator.documents import encoded
from azure_simulator.fleet import Machine, MachineSet

SINCE = "2018-10-01"
VERSIONS = tuple(version for version in instance.VERSIONS if version >= SINCE)
# Fields that each version added, by the table on Microsoft's page.
SUBSCRIPTION_SINCE, SKU_SINCE = "2019-04-30", "2019-11-01"
DOMAIN = "metadata.azure.com"
INTERMEDIATE_PATH = "/control/authority/intermediate.cer"
# The page's sample shows five seconds; real documents live for six hours.
LIFE = timedelta(hours=6)
NONCE = re.compile(r"[A-Za-z0-9]{1,32}")

# ids that the fleet file leaves out are the same at every start.
_CLASSIC = uuid.UUID("0d0c2c4e-54f1-4bb3-8f0c-3c1f2a9f7f11")
_KEY_BITS = 2048
_LEAF_LIFE = timedelta(days=180)


# Certificate chains for forged documents, with the host name in their leaf certificates.
_STRANGERS = {"foreign-root": DOMAIN, "wrong-subject": "metadata.example.org"}


class UnavailableError(Exception):
    """Attested documents cannot be signed here. The message states the reason."""


def content(in_set: MachineSet, machine: Machine, version: str, nonce: str, now: datetime) -> dict[str, Any]:
    """Return the content to sign for a machine, in one of VERSIONS. An empty `nonce` is replaced by the time, as at
    Azure.

    `licenseType` is omitted: only machines with Azure Hybrid Benefit have it.
    """
    whole: dict[str, Any] = {
        "nonce": nonce or now.strftime("%Y%m%d-%H%M%S"),
        "plan": dict(instance.PLAN),
        "timeStamp": {"createdOn": _stamp(now), "expiresOn": _stamp(now + LIFE)},
        # A machine of the classic model has one here, too.
        "vmId": machine.vm_id or str(uuid.uuid5(_CLASSIC, machine.id)),
    }
    if version >= SUBSCRIPTION_SINCE:
        whole["subscriptionId"] = in_set.subscription
    if version >= SKU_SINCE:
        whole["sku"] = instance.SKU if machine.vm_id else ""
    return whole


def forged(signed: dict[str, Any], forged_as: str, now: datetime) -> dict[str, Any]:
    """Return the content for a forged document: Azure's content with wrong values. `forged_as` names the kind of
    forgery.
    """
    changes: dict[str, dict[str, Any]] = {
        "expired": {"timeStamp": {"createdOn": _stamp(now - 2 * LIFE), "expiresOn": _stamp(now - LIFE)}},
        "old-nonce": {"nonce": "0123456789"},
        "other-subscription": {"subscriptionId": str(_CLASSIC)},
        "other-vm": {"vmId": str(_CLASSIC)},
    }
    return signed | changes.get(forged_as, {})


def _stamp(at: datetime) -> str:
    return at.strftime("%m/%d/%y %H:%M:%S -0000")


class Authority:
    """Certificate authority: a root, an intermediate, and a leaf certificate for each region, as at Azure. Created at
    first use; thread-safe.

    Each method that signs or returns a certificate raises UnavailableError.
    """

    def __init__(self) -> None:
        # Address of the simulator. Leaf certificates state that the issuer certificate is available there.
        self.url = ""
        self._lock = threading.Lock()
        # By region: the leaf certificate, and the time until which it is used.
        self._leaves: dict[str, tuple[Any, datetime]] = {}
        self._strangers: dict[str, Any] = {}

    def document(self, signed: dict[str, Any], location: str, now: datetime, forged_as: str = "") -> dict[str, str]:
        """Sign the content and return it as the response of the metadata service. The region's leaf certificate is
        renewed before it expires.
        """
        with self._lock:
            if forged_as in _STRANGERS:
                # Signed by unknown authorities, or for names that are not Azure's.
                chain = self._strange(forged_as)
                signature = chain.pkcs7(encoded(signed), chain.leaf(location, self.url + INTERMEDIATE_PATH, now))
                return {"encoding": "pkcs7", "signature": base64.b64encode(signature).decode()}
            leaf, until = self._leaves.get(location, (None, now))
            if not until - _LEAF_LIFE <= now < until:
                leaf, until = self._chain.leaf(location, self.url + INTERMEDIATE_PATH, now), now + _LEAF_LIFE
                self._leaves[location] = leaf, until
            signature = self._chain.pkcs7(encoded(signed), leaf)
        if forged_as == "altered":
            signature = signature.replace(b"vmId", b"vmID")
        return {"encoding": "pkcs7", "signature": base64.b64encode(signature).decode()}

    def shown(self, now: datetime) -> dict[str, str]:
        """Return the certificates as PEM: the root to trust, and the intermediate."""
        with self._lock:
            root, intermediate = self._chain.authorities(now)
        return {"root": self._chain.pem(root), "intermediate": self._chain.pem(intermediate)}

    def intermediate(self, now: datetime) -> bytes:
        """Return the intermediate certificate as DER. The field `CA Issuers` of the leaf certificates refers to it."""
        with self._lock:
            intermediate: bytes = self._chain.der(self._chain.authorities(now)[1])
        return intermediate

    def _strange(self, forged_as: str) -> Any:
        if forged_as not in self._strangers:
            module = importlib.import_module("azure_simulator.attestation_chain")
            self._strangers[forged_as] = module.Chain(_KEY_BITS, _STRANGERS[forged_as])
        return self._strangers[forged_as]

    @functools.cached_property
    def _chain(self) -> Any:
        # Imported here, because everything else in the simulator needs only the standard library.
        try:
            return importlib.import_module("azure_simulator.attestation_chain").Chain(_KEY_BITS, DOMAIN)
        except ModuleNotFoundError as error:
            raise UnavailableError("signing needs the Python package cryptography") from error
