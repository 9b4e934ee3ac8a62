"""Ways to forge an attested document: each is refused by the check that it fails. The verifier needs no database."""

import base64
import json
import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import certifi
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from drydock_agent import wire
from pytest_django import Settings

from fleet.domain.machines import attestation
from fleet.domain.machines.attestation import LASTS, Attested, Trust, new_nonce, trust_of, verify, wrong_with
from fleet.domain.reasons import Reason, Refused
from fleet.operations.machines import entrance
from fleet.wording.machines import SENTENCES
from fleet.wording.say import say
from fleet.wording.times import API
from tests.machines import forger
from tests.machines.forger import NOW, VM_ID


def judge(nonce: str) -> Reason | None:
    return None if nonce == forger.NONCE else Reason("attested-nonce")


def check(document: str, intermediates: Sequence[str] | None = None, **changes: Any) -> Attested:
    wanted: dict[str, Any] = {
        "trust": Trust((forger.root(),)),
        "now": forger.NOW,
        "judge_nonce": judge,
        "subscriptions": {forger.SUBSCRIPTION},
    }
    return verify(
        document,
        forger.chain_text(forger.intermediate()) if intermediates is None else intermediates,
        **wanted | changes,
    )


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(Refused) as refused:
        call()
    assert refused.value.reason.code in SENTENCES
    assert say(refused.value.reason, API).endswith((".", forger.ISSUER_URL))
    return refused.value.reason.code


def outcome(forgery: forger.Forgery) -> str:
    made = forgery.document()
    text = made.text() if isinstance(made, forger.Document) else made
    text = base64.b64encode(text).decode() if isinstance(text, bytes) else text
    brought = forgery.intermediates() if forgery.intermediates else None
    return code_of(lambda: check(text, brought, **forgery.circumstances()))


@pytest.mark.parametrize("name", forger.FORGERIES)
def test_it_is_refused_by_the_check_that_it_fails(name: str) -> None:
    assert outcome(forger.FORGERIES[name]) == forger.FORGERIES[name].refused_as


@pytest.mark.parametrize("digest", [forger.SHA256, forger.SHA256_WITH_RSA])
@pytest.mark.parametrize("signature", [forger.RSA, forger.SHA256_WITH_RSA])
def test_what_azure_signs_is_believed(digest: str, signature: str) -> None:
    document = forger.Document(digest=forger.algorithm(digest), algorithm=forger.algorithm(signature))
    assert check(document.text()) == Attested(
        forger.VM_ID, forger.SUBSCRIPTION, forger.NOW, forger.NOW + timedelta(hours=6), "22_04-lts-gen2"
    )


def test_microsofts_own_sample_is_read_and_its_signature_too_but_it_is_not_azures() -> None:
    sample = Path(__file__).parent.parent / "samples" / "attested_document.json"
    document = json.loads(sample.read_text("utf-8"))["response"]["signature"]
    assert code_of(lambda: check(document)) == "attested-subject"


def test_the_roots_that_are_shipped_are_those_of_the_public_bundle() -> None:
    folder = Path(attestation.__file__).parent / "roots"
    shipped = {path.name: x509.load_pem_x509_certificate(path.read_bytes()) for path in folder.iterdir()}
    assert sorted(shipped) == [
        "digicert-global-root-g2.pem",
        "digicert-global-root-g3.pem",
        "microsoft-ecc-root-2017.pem",
        "microsoft-rsa-root-2017.pem",
    ]
    bundle = Path(certifi.where()).read_text("utf-8")
    for one in shipped.values():
        assert one.public_bytes(serialization.Encoding.PEM).decode().strip() in bundle
    assert len(trust_of(shipped.values()).roots) == 4


def test_the_bag_may_have_more_certificates_than_the_signers_in_any_order() -> None:
    for bag in ((forger.intermediate(), forger.leaf()), (forger.leaf(), forger.intermediate())):
        assert check(forger.Document(bag=bag).text()).vm_id == forger.VM_ID


def test_intermediates_may_be_in_the_root_file() -> None:
    trust = trust_of([forger.intermediate(), forger.root()])
    assert trust == Trust((forger.root(),), (forger.intermediate(),))
    assert check(forger.Document().text(), [], trust=trust).vm_id == forger.VM_ID


def test_missing_intermediate_is_reported_with_its_address() -> None:
    with pytest.raises(Refused) as refused:
        check(forger.Document().text(), [])
    assert (refused.value.code, refused.value.details) == ("intermediate-wanted", {"url": forger.ISSUER_URL})


@pytest.mark.parametrize("name", ["metadata.azure.us", "norwaywest.metadata.azure.cn", "metadata.microsoftazure.de"])
def test_other_clouds_sign_too(name: str) -> None:
    assert check(forger.by(forger.Certificate(sans=(name,))).text()).vm_id == forger.VM_ID


def test_a_nonce_is_not_judged_before_the_chain_is() -> None:
    judged: list[str] = []
    for document, brought in ((forger.by(forger.self_signed()), None), (forger.Document(), [])):
        code_of(lambda document=document, brought=brought: check(document.text(), brought, judge_nonce=judged.append))  # type: ignore[misc]
    assert judged == []


def test_nonce_is_valid_for_a_minute_in_every_process_and_not_forgeable() -> None:
    ours, theirs = b"1" * 32, b"2" * 32
    nonce = new_nonce(key=ours, now=forger.NOW)
    assert len(nonce) == 32 and nonce.isalnum()
    assert nonce != new_nonce(key=ours, now=forger.NOW)

    def wrong(nonce: str, after: timedelta = timedelta(0), *keys: bytes) -> str | None:
        found = wrong_with(nonce, keys=keys or [ours], now=forger.NOW + after)
        return found.code if found else None

    assert wrong(nonce) is None
    assert wrong(nonce, LASTS - timedelta(seconds=1)) is None
    # A key that was renewed a moment ago.
    assert wrong(nonce, timedelta(0), theirs, ours) is None
    assert wrong(nonce, LASTS) == "attested-nonce-over"
    assert wrong(nonce, -timedelta(minutes=1)) == "attested-nonce-over"
    for other in (new_nonce(key=theirs, now=forger.NOW), nonce.lower(), nonce[:-1], "", "é" * 32, "A" * 32, "A" * 64):
        assert wrong(other) == "attested-nonce"


# Intermediates that Drydock ships complete the chain of a document that holds its leaf only, and are never trusted.

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


def checked_with(*hints: x509.Certificate, brought: tuple[x509.Certificate, ...] = ()) -> str:
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
    assert checked_with(*hints()) == "intermediate-wanted"
    assert checked_with(*hints(), brought=(g2_issuer(), g2_root())) == VM_ID


def test_expired_hint_is_skipped_for_a_current_one() -> None:
    assert checked_with(g2_issuer(), g2_root(ends=NOW - timedelta(days=1)), g2_root()) == VM_ID


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
