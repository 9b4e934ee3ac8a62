"""Intermediates that Drydock ships complete the chain of a document that holds its leaf only, and are never trusted."""

import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from drydock_agent import wire
from pytest_django import Settings

from fleet.domain.machines.attestation import trust_of, verify
from fleet.domain.reasons import Refused
from fleet.operations.machines import entrance
from tests.machines import forger
from tests.machines.forger import NOW, VM_ID

FOLDER = entrance.SHIPPED_INTERMEDIATES
ISSUER = "Tests G2 CA OCSP 02"


def g2_root(**changes: object) -> x509.Certificate:
    """Return a newer root, cross-signed by the trusted one, as Microsoft TLS RSA Root G2 is."""
    return forger.authority("Tests Root G2", "g2", "Tests Root", "root", **changes)


def g2_issuer(**changes: object) -> x509.Certificate:
    """Return the issuer of leaf certificates, as Microsoft TLS G2 RSA CA OCSP 02 is."""
    return forger.authority(ISSUER, "ocsp", "Tests Root G2", "g2", serial=8, **changes)


def g2_document(**changes: object) -> str:
    """Return an attested document that holds its leaf only."""
    leaf = forger.Certificate(issuer=ISSUER, signed_by=forger.ec_key("ocsp"), serial=9)
    return forger.by(leaf, **changes).text()


def check(*hints: x509.Certificate, brought: tuple[x509.Certificate, ...] = ()) -> str:
    """Verify the document with these shipped intermediates, and return the code of the refusal, or the vmId."""
    try:
        return verify(
            g2_document(),
            forger.chain_text(*brought),
            trust=trust_of([forger.root()], hints),
            now=NOW,
            judge_nonce=lambda nonce: None,
            subscriptions=None,
        ).vm_id
    except Refused as refused:
        return refused.code


@pytest.mark.django_db
def test_document_with_its_leaf_alone_is_verified_without_network(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = {name: tmp_path / name for name in ("roots", "intermediates")}
    for folder, certificates in {"roots": [forger.root()], "intermediates": [g2_issuer(), g2_root()]}.items():
        folders[folder].mkdir()
        for number, certificate in enumerate(certificates):
            pem = certificate.public_bytes(serialization.Encoding.PEM)
            (folders[folder] / f"{number}.pem").write_bytes(pem)
    settings.ATTESTED_ROOTS = str(folders["roots"])
    monkeypatch.setattr(entrance, "SHIPPED_INTERMEDIATES", folders["intermediates"])
    said = forger.said(nonce=entrance.challenge(now=NOW).nonce)
    document = g2_document(content=json.dumps(said).encode())
    assert entrance.attested_by(wire.AttestedDocument(signature=document), now=NOW).vm_id == VM_ID


HINTS: dict[str, Callable[[], tuple[x509.Certificate, ...]]] = {
    "no hint": lambda: (),
    "its issuer is missing": lambda: (g2_issuer(),),
    "its root is a hint": lambda: (g2_issuer(), forger.authority("Tests Root G2", "g2", "Tests Root G2", "g2")),
    "foreign root": lambda: (g2_issuer(), forger.authority("Tests Root G2", "g2", "Foreign Root", "foreign")),
    "forged signature": lambda: (g2_issuer(), forger.authority("Tests Root G2", "g2", "Tests Root", "foreign")),
    "expired": lambda: (g2_issuer(), g2_root(ends=NOW - timedelta(seconds=1))),
    "not yet valid": lambda: (g2_issuer(), g2_root(begins=NOW + timedelta(days=1))),
}


@pytest.mark.parametrize("name", HINTS)
def test_hint_without_trusted_root_admits_nothing_and_lets_the_agent_fetch(name: str) -> None:
    hints = HINTS[name]
    assert check(*hints()) == "intermediate-wanted"
    assert check(*hints(), brought=(g2_issuer(), g2_root())) == VM_ID


def test_expired_hint_is_skipped_for_a_current_one() -> None:
    assert check(g2_issuer(), g2_root(ends=NOW - timedelta(days=1)), g2_root()) == VM_ID


def test_each_shipped_intermediate_states_its_fingerprint_and_is_signed_by_a_known_root() -> None:
    roots = [x509.load_pem_x509_certificate(path.read_bytes()) for path in FOLDER.parent.glob("*roots/*.pem")]
    assert len(roots) == 5
    files = [*FOLDER.iterdir(), *FOLDER.parent.glob("optional_roots/*")]
    assert [path.stem for path in sorted(files)] == [
        "microsoft-azure-rsa-tls-issuing-ca-03", "microsoft-azure-rsa-tls-issuing-ca-04",
        "microsoft-azure-rsa-tls-issuing-ca-07", "microsoft-azure-rsa-tls-issuing-ca-08",
        "microsoft-tls-g2-rsa-ca-ocsp-02", "microsoft-tls-g2-rsa-ca-ocsp-04", "microsoft-tls-rsa-root-g2",
    ]  # fmt: skip
    for path in files:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        stated = re.search(r"^SHA-256: (\w{64})$", path.read_text(), re.MULTILINE)
        assert stated is not None and certificate.fingerprint(hashes.SHA256()).hex() == stated[1]
        (issuer,) = (root for root in roots if root.subject == certificate.issuer)
        certificate.verify_directly_issued_by(issuer)
