"""Ways to forge an attested document: each is refused by the check that it fails. The verifier needs no database."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import certifi
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from fleet.domain.machines import attestation
from fleet.domain.machines.attestation import (
    LASTS,
    MOST_BYTES,
    Attested,
    Trust,
    new_nonce,
    trust_of,
    verify,
    wrong_with,
)
from fleet.domain.reasons import Reason, Refused
from fleet.wording.machines import SENTENCES
from fleet.wording.say import say
from fleet.wording.times import API
from tests.machines.forger import (
    ISSUER_URL,
    MD5,
    NONCE,
    NOW,
    OTHER_VM_ID,
    RSA,
    RSA_PSS,
    SHA1,
    SHA256,
    SHA256_WITH_RSA,
    SIGNED_DATA,
    SUBSCRIPTION,
    VM_ID,
    Certificate,
    Document,
    algorithm,
    authority,
    by,
    chain_text,
    der,
    ec_key,
    intermediate,
    leaf,
    oid,
    root,
    rsa_key,
    said,
    says,
    stamp,
)


def judge(nonce: str) -> Reason | None:
    return None if nonce == NONCE else Reason("attested-nonce")


def check(document: str, intermediates: Sequence[str] | None = None, **changes: Any) -> Attested:
    wanted: dict[str, Any] = {
        "trust": Trust((root(),)),
        "now": NOW,
        "judge_nonce": judge,
        "subscriptions": {SUBSCRIPTION},
    }
    return verify(document, chain_text(intermediate()) if intermediates is None else intermediates, **wanted | changes)


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(Refused) as refused:
        call()
    assert isinstance(refused.value.reason, Reason)
    assert refused.value.reason.code in SENTENCES
    assert say(refused.value.reason, API).endswith((".", ISSUER_URL))
    return refused.value.reason.code


@dataclass
class Forgery:
    """One way: the document, what comes with it, under which circumstances, and what refuses it."""

    refused_as: str
    document: Callable[[], Document | str | bytes] = Document
    intermediates: Callable[[], list[str]] | None = None
    circumstances: Callable[[], dict[str, Any]] = dict

    def play(self) -> str:
        made = self.document()
        text = made.text() if isinstance(made, Document) else made
        text = base64.b64encode(text).decode() if isinstance(text, bytes) else text
        brought = self.intermediates() if self.intermediates else None
        return code_of(lambda: check(text, brought, **self.circumstances()))


def altered(old: bytes, new: bytes) -> Callable[[], bytes]:
    """Bytes changed after Azure has signed."""

    def made() -> bytes:
        raw = Document().raw()
        assert len(old) == len(new) and raw.count(old) == 1
        return raw.replace(old, new)

    return made


def indefinite() -> bytes:
    """Return a document in BER, with an end mark in place of a length."""
    return b"\x30\x80" + Document().raw()[4:] + b"\x00\x00"


def long_length() -> bytes:
    raw = Document().raw()
    return b"\x30\x83\x00" + raw[2:]


def in_pieces() -> Document:
    whole = json.dumps(said()).encode()
    pieces = der(0x24, der(4, whole[:40]), der(4, whole[40:]))
    return Document(content_part=der(0xA0, pieces))


def mine(**changes: Any) -> Certificate:
    return Certificate(key=rsa_key(name="mine"), **changes)


def self_signed() -> Certificate:
    return mine(issuer="eastus.metadata.azure.com", signed_by=rsa_key(name="mine"), url="")


def foreign_root() -> list[str]:
    return chain_text(authority("Tests Issuing CA", "foreign", "Foreign Root", "foreign root", serial=8))


def foreign_root_named_as_ours() -> list[str]:
    return chain_text(authority("Tests Issuing CA", "foreign", "Tests Root", "foreign root", serial=8))


def not_an_authority() -> list[str]:
    """Return a chain in which a genuine certificate that is no authority issued another."""
    return chain_text(authority("Tests Issuing CA", "intermediate", "Tests Root", "root", serial=8, authority=False))


OWN = mine(sans=("vm.example.org",), serial=5)
DIGEST_ATTRIBUTE = der(0xA0, der(0x30, oid("2a864886f70d010904"), der(0x31, der(4, b"0" * 32))))
HASH_IS_SHA1 = hashes.SHA1()

FORGERIES: dict[str, Forgery] = {
    # What comes is not what it says it is.
    "nothing at all": Forgery("attested-not-der", lambda: ""),
    "no base64": Forgery("attested-not-base64", lambda: "§" * 40),
    "too large": Forgery("attested-too-large", lambda: bytes(MOST_BYTES + 1)),
    "too large by far": Forgery("attested-too-large", lambda: "A" * 1_000_000),
    "noise": Forgery("attested-not-der", lambda: bytes(range(256)) * 4),
    "cut short": Forgery("attested-not-der", lambda: Document().raw()[:-40]),
    # BER, which two programs may read as two things.
    "something behind it": Forgery("attested-not-der", lambda: Document().raw() + b"\x05\x00"),
    "a length without an end": Forgery("attested-not-der", indefinite),
    "a length longer than it need be": Forgery("attested-not-der", long_length),
    "content in pieces": Forgery("attested-not-der", in_pieces),
    "nested a thousand deep": Forgery("attested-not-der", lambda: b"\x30\x80" * 1000),
    "another kind of message": Forgery(
        "attested-not-der",
        altered(bytes.fromhex(SIGNED_DATA), bytes.fromhex("2a864886f70d010703")),
    ),
    "another version": Forgery("attested-not-der", lambda: Document(version=3)),
    "a list of revoked certificates within": Forgery("attested-not-der", lambda: Document(revoked=der(0xA1))),
    "no content": Forgery("attested-detached", lambda: Document(content_part=b"")),
    # Who has signed.
    "no signer": Forgery("attested-signers", lambda: Document(signers=0)),
    "two signers": Forgery("attested-signers", lambda: Document(signers=2)),
    "a signer named by its key": Forgery("attested-not-der", lambda: Document(signer_version=3)),
    "no certificate": Forgery("attested-not-der", lambda: Document(bag=())),
    "the signer's certificate is another": Forgery("attested-signer-certificate", lambda: Document(serial=12)),
    "two certificates of one number": Forgery("attested-signer-certificate", lambda: Document(bag=(leaf(), leaf()))),
    "Azure's certificate first, the signer's own second": Forgery(
        "attested-subject", lambda: by(OWN, bag=(leaf(), OWN.made()))
    ),
    # What is signed, and how.
    "SHA-1": Forgery("attested-algorithm", lambda: Document(digest=algorithm(SHA1), hash=HASH_IS_SHA1)),
    "MD5": Forgery("attested-algorithm", lambda: Document(digest=algorithm(MD5))),
    "SHA-1 under the name of SHA-256": Forgery("attested-signature", lambda: Document(hash=HASH_IS_SHA1)),
    "PSS": Forgery("attested-algorithm", lambda: Document(algorithm=algorithm(RSA_PSS))),
    "an algorithm with parameters": Forgery(
        "attested-algorithm", lambda: Document(digest=algorithm(SHA256, der(0x30, oid(SHA256))))
    ),
    "signed attributes": Forgery("attested-attributes", lambda: Document(attributes=DIGEST_ATTRIBUTE)),
    "attributes behind the signature": Forgery("attested-attributes", lambda: Document(behind=der(0xA1, der(0x30)))),
    "the content of another signature": Forgery("attested-signature", lambda: Document(signed=b"{}")),
    "no signature": Forgery("attested-signature", lambda: Document(signature=b"")),
    "a signature of zeros": Forgery("attested-signature", lambda: Document(signature=bytes(256))),
    "signed by another key under Azure's certificate": Forgery(
        "attested-signature", lambda: Document(key=rsa_key(name="mine"))
    ),
    "another vmId": Forgery("attested-signature", altered(VM_ID.encode(), OTHER_VM_ID.encode())),
    "another subscription": Forgery("attested-signature", altered(SUBSCRIPTION.encode(), VM_ID.encode())),
    "another nonce": Forgery("attested-signature", altered(NONCE.encode(), b"B" * 32)),
    # The certificate of the signer.
    "a key on a curve": Forgery(
        "attested-key", lambda: by(Certificate(key=ec_key("leaf"), serial=9))
    ),
    "a key of 1,024 bits": Forgery("attested-key", lambda: by(Certificate(key=rsa_key(1024), serial=9))),
    "no name": Forgery("attested-subject", lambda: by(mine(sans=None))),
    "another subject's name": Forgery("attested-subject", lambda: by(mine(sans=("www.example.org",)))),
    "a name that ends like Azure's": Forgery("attested-subject", lambda: by(mine(sans=("evilmetadata.azure.com",)))),
    "a name that begins like Azure's": Forgery(
        "attested-subject", lambda: by(mine(sans=("metadata.azure.com.example.org",)))
    ),
    "another service of Azure's": Forgery("attested-subject", lambda: by(mine(sans=("management.azure.com",)))),
    "every name there is": Forgery("attested-subject", lambda: by(mine(sans=("*.azure.com", "*")))),
    "a certificate for signing code": Forgery(
        "attested-use", lambda: by(mine(eku=(ExtendedKeyUsageOID.CODE_SIGNING,)))
    ),
    "a certificate for clients": Forgery("attested-use", lambda: by(mine(eku=(ExtendedKeyUsageOID.CLIENT_AUTH,)))),
    "a certificate for anything": Forgery("attested-use", lambda: by(mine(eku=None))),
    "a key that signs nothing": Forgery("attested-use", lambda: by(mine(digital_signature=False))),
    # The chain.
    "signed by itself": Forgery("attested-chain", lambda: by(self_signed())),
    "a foreign root": Forgery(
        "attested-chain", lambda: by(mine(signed_by=ec_key("foreign"))), foreign_root
    ),
    "a foreign root of our root's name": Forgery(
        "attested-chain", lambda: by(mine(signed_by=ec_key("foreign"))), foreign_root_named_as_ours
    ),
    "a foreign root brought along": Forgery(
        "attested-chain",
        lambda: by(mine(issuer="Foreign Root", signed_by=ec_key("foreign root"), url="")),
        lambda: chain_text(authority("Foreign Root", "foreign root", "Foreign Root", "foreign root")),
    ),
    "an issuer that is no authority": Forgery("attested-chain", intermediates=not_an_authority),
    "an intermediate that has expired": Forgery(
        "attested-chain",
        intermediates=lambda: chain_text(
            authority("Tests Issuing CA", "intermediate", "Tests Root", "root", serial=8, ends=NOW - timedelta(days=1))
        ),
    ),
    "a certificate that has expired": Forgery(
        "attested-certificate-over", lambda: by(mine(ends=NOW - timedelta(seconds=1)))
    ),
    "a certificate of tomorrow": Forgery(
        "attested-certificate-over", lambda: by(mine(begins=NOW + timedelta(days=1)))
    ),
    "no intermediate, and nowhere to get it": Forgery("attested-chain", lambda: by(mine(url="")), list),
    "no intermediate": Forgery("attested-intermediate", intermediates=list),
    "an intermediate that is to be fetched elsewhere": Forgery(
        "attested-chain", lambda: by(mine(url="http://169.254.169.254/metadata/instance")), list
    ),
    "an intermediate at a name that begins like Microsoft's": Forgery(
        "attested-chain", lambda: by(mine(url="http://www.microsoft.com.example.org/a.crt")), list
    ),
    "an intermediate at Microsoft's name as a login": Forgery(
        "attested-chain", lambda: by(mine(url="http://www.microsoft.com@example.org/a.crt")), list
    ),
    "an intermediate that is none": Forgery(
        "attested-certificate-unreadable", intermediates=lambda: [base64.b64encode(b"0" * 40).decode()]
    ),
    "five intermediates": Forgery(
        "attested-many-intermediates", intermediates=lambda: chain_text(*[intermediate()] * 5)
    ),
    "no roots here": Forgery("attested-no-roots", circumstances=lambda: {"trust": Trust(())}),
    # Azure has signed it, and yet.
    "a nonce of another caller": Forgery("attested-nonce", lambda: says(nonce="20261123-120000")),
    "a nonce that is a number": Forgery("attested-nonce", lambda: says(nonce=1)),
    "no nonce": Forgery("attested-unreadable", lambda: says(nonce=...)),
    "no JSON": Forgery("attested-unreadable", lambda: Document(content=b"vmId")),
    "a field twice": Forgery(
        "attested-unreadable",
        lambda: Document(content=json.dumps(said()).encode()[:-1] + b', "vmId": "' + OTHER_VM_ID.encode() + b'"}'),
    ),
    "nested for ever": Forgery("attested-unreadable", lambda: Document(content=b"[" * 9000)),
    "it has expired": Forgery("attested-expired", circumstances=lambda: {"now": NOW + timedelta(hours=6, minutes=6)}),
    "it is of tomorrow": Forgery("attested-expired", circumstances=lambda: {"now": NOW - timedelta(minutes=6)}),
    "it ends before it begins": Forgery(
        "attested-expired",
        lambda: says(timeStamp={"createdOn": stamp(NOW), "expiresOn": stamp(NOW - timedelta(minutes=1))}),
    ),
    "times of another form": Forgery(
        "attested-times", lambda: says(timeStamp={"createdOn": NOW.isoformat(), "expiresOn": NOW.isoformat()})
    ),
    "times of no calendar": Forgery(
        "attested-times",
        lambda: says(timeStamp={"createdOn": "13/41/26 25:00:00 -0000", "expiresOn": stamp(NOW)}),
    ),
    "no times": Forgery("attested-unreadable", lambda: says(timeStamp=None)),
    "a vmId that is none": Forgery("attested-vm-id", lambda: says(vmId="vm1")),
    "a vmId in braces": Forgery("attested-vm-id", lambda: says(vmId="{" + VM_ID + "}")),
    "a vmId that is a list": Forgery("attested-vm-id", lambda: says(vmId=[VM_ID])),
    "a subscription that is none": Forgery("attested-subscription", lambda: says(subscriptionId="mine")),
    "no subscription": Forgery("attested-unreadable", lambda: says(subscriptionId=...)),
    "a subscription that is not ours": Forgery("attested-subscription-strange", lambda: says(subscriptionId=VM_ID)),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGERIES)
def test_it_is_refused_by_the_check_that_it_fails(name: str) -> None:
    assert FORGERIES[name].play() == FORGERIES[name].refused_as


@pytest.mark.parametrize("digest", [SHA256, SHA256_WITH_RSA])
@pytest.mark.parametrize("signature", [RSA, SHA256_WITH_RSA])
def test_what_azure_signs_is_believed(digest: str, signature: str) -> None:
    document = Document(digest=algorithm(digest), algorithm=algorithm(signature))
    assert check(document.text()) == Attested(VM_ID, SUBSCRIPTION, NOW, NOW + timedelta(hours=6), "22_04-lts-gen2")


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
    for bag in ((intermediate(), leaf()), (leaf(), intermediate())):
        assert check(Document(bag=bag).text()).vm_id == VM_ID


def test_intermediates_may_be_in_the_root_file() -> None:
    trust = trust_of([intermediate(), root()])
    assert trust == Trust((root(),), (intermediate(),))
    assert check(Document().text(), [], trust=trust).vm_id == VM_ID


def test_missing_intermediate_is_reported_with_its_address() -> None:
    with pytest.raises(Refused) as refused:
        check(Document().text(), [])
    assert (refused.value.code, refused.value.details) == ("intermediate-wanted", {"url": ISSUER_URL})


@pytest.mark.parametrize("name", ["metadata.azure.us", "norwaywest.metadata.azure.cn", "metadata.microsoftazure.de"])
def test_other_clouds_sign_too(name: str) -> None:
    assert check(by(Certificate(sans=(name,))).text()).vm_id == VM_ID


def test_a_nonce_is_not_judged_before_the_chain_is() -> None:
    judged: list[str] = []
    for document, brought in ((by(self_signed()), None), (Document(), [])):
        code_of(lambda document=document, brought=brought: check(document.text(), brought, judge_nonce=judged.append))  # type: ignore[misc]
    assert judged == []


def test_nonce_is_valid_for_a_minute_in_every_process_and_not_forgeable() -> None:
    ours, theirs = b"1" * 32, b"2" * 32
    nonce = new_nonce(key=ours, now=NOW)
    assert len(nonce) == 32 and nonce.isalnum()
    assert nonce != new_nonce(key=ours, now=NOW)

    def wrong(nonce: str, after: timedelta = timedelta(0), *keys: bytes) -> str | None:
        found = wrong_with(nonce, keys=keys or [ours], now=NOW + after)
        return found.code if found else None

    assert wrong(nonce) is None
    assert wrong(nonce, LASTS - timedelta(seconds=1)) is None
    # A key that was renewed a moment ago.
    assert wrong(nonce, timedelta(0), theirs, ours) is None
    assert wrong(nonce, LASTS) == "attested-nonce-over"
    assert wrong(nonce, -timedelta(minutes=1)) == "attested-nonce-over"
    for other in (new_nonce(key=theirs, now=NOW), nonce.lower(), nonce[:-1], "", "é" * 32, "A" * 32, "A" * 64):
        assert wrong(other) == "attested-nonce"
