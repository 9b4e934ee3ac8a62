"""`/metadata/attested/document`, held against Microsoft's page and the sample on it."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from azure_simulator import attestation
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store

from tests.simulator.asking import START, Answer, Simulated, west_norway
from tests.simulator.asking import simulated as simulator

SAMPLE = Path(__file__).parent.parent / "samples" / "attested_document.json"
SEQUENCE, SET, OID, OCTETS, TAGGED = 0x30, 0x31, 0x06, 0x04, 0xA0


@pytest.fixture(scope="module")
def azure() -> Any:
    """One for all: its keys take a moment to be made."""
    with simulator() as running:
        yield running


def ask(azure: Simulated, vm: str = "WestNO_0", query: str = "", version: str = "2025-04-07") -> Answer:
    return azure.get(vm, f"/metadata/attested/document?api-version={version}{query}")


def parts(der: bytes) -> list[tuple[int, bytes]]:
    """Return the sibling elements in `der`: tag and content."""
    found = []
    while der:
        tag, length, start = der[0], der[1], 2
        if length & 0x80:
            start += length & 0x7F
            length = int.from_bytes(der[2:start], "big")
        found.append((tag, der[start : start + length]))
        der = der[start + length :]
    return found


class Signed:
    """A PKCS #7 taken apart, in the form of the page's sample."""

    def __init__(self, answer: Any) -> None:
        assert answer["encoding"] == "pkcs7" and set(answer) == {"encoding", "signature"}
        [(_, whole)] = parts(base64.b64decode(answer["signature"], validate=True))
        (_, self.kind), (_, tagged) = parts(whole)
        [(_, data)] = parts(tagged)
        (_, self.version), (_, self.digests), (_, held), (_, certificate), (_, signers) = parts(data)
        (_, self.content_kind), (_, octets) = parts(held)
        [(_, self.content)] = parts(octets)
        self.certificate_der = certificate
        [(_, signer)] = parts(signers)
        self.signer = parts(signer)

    @property
    def document(self) -> Any:
        return json.loads(self.content)

    @property
    def form(self) -> Any:
        """Everything but what differs from machine to machine."""
        _, issuer, digest, algorithm, signature = self.signer
        tags = [tag for tag, _ in parts(issuer[1])]
        return self.kind, self.version, self.digests, self.content_kind, tags, digest, algorithm, signature[0]

    @property
    def leaf(self) -> x509.Certificate:
        return x509.load_der_x509_certificate(self.certificate_der)


def test_it_has_the_form_of_microsofts_sample(azure: Simulated) -> None:
    sample = Signed(json.loads(SAMPLE.read_text(encoding="utf-8"))["response"])
    ours = Signed(ask(azure, version="2018-10-01", query="&nonce=1234566766").json)
    assert ours.form == sample.form
    assert list(ours.document) == list(sample.document) == ["nonce", "plan", "timeStamp", "vmId"]
    assert ours.document["plan"] == sample.document["plan"]
    assert ours.document["nonce"] == sample.document["nonce"]


def test_it_says_which_machine_of_which_subscription_and_until_when(azure: Simulated) -> None:
    assert Signed(ask(azure, query="&nonce=0123456789").json).document == {
        "nonce": "0123456789",
        "plan": {"name": "", "product": "", "publisher": ""},
        "timeStamp": {"createdOn": "04/11/22 22:11:58 -0000", "expiresOn": "04/12/22 04:11:58 -0000"},
        "vmId": "WestNO_0-vm-id",
        "subscriptionId": "5a1c0f3e-8a6b-4d0e-9f57-2b8f6a4c1d90",
        "sku": "12-gen2",
    }


@pytest.mark.parametrize(
    ("version", "more"),
    [
        ("2018-10-01", set()),
        ("2019-03-11", set()),
        ("2019-04-30", {"subscriptionId"}),
        ("2019-11-01", {"subscriptionId", "sku"}),
        ("2025-04-07", {"subscriptionId", "sku"}),
    ],
)
def test_each_version_has_the_fields_of_its_time(azure: Simulated, version: str, more: set[str]) -> None:
    assert set(Signed(ask(azure, version=version).json).document) == {"nonce", "plan", "timeStamp", "vmId"} | more


@pytest.mark.parametrize("version", ["2017-12-01", "2018-04-02", "2019-01-01", "2031-01-01", ""])
def test_versions_before_the_first_and_unknown_ones_are_400(azure: Simulated, version: str) -> None:
    answer = ask(azure, version=version)
    assert (answer.status, answer.json["newest-versions"]) == (400, ["2025-04-07", "2024-07-17", "2024-03-15"])


def test_without_a_nonce_it_is_the_time(azure: Simulated) -> None:
    for query in ("", "&nonce="):
        assert Signed(ask(azure, query=query).json).document["nonce"] == "20220411-221158"


@pytest.mark.parametrize("nonce", ["1", "0123456789", "abcde12345", "A" * 32])
def test_a_nonce_of_up_to_32_letters_and_digits_comes_back(azure: Simulated, nonce: str) -> None:
    assert Signed(ask(azure, query=f"&nonce={nonce}").json).document["nonce"] == nonce


@pytest.mark.parametrize("nonce", ["A" * 33, "two%20words", "%22", "n%C3%A9", "1%0A"])
def test_any_other_nonce_is_400(azure: Simulated, nonce: str) -> None:
    answer = ask(azure, query=f"&nonce={nonce}")
    assert answer.status == 400 and "nonce" in answer.json["error"]


def test_the_leaf_signs_the_content_and_is_named_by_the_signer(azure: Simulated) -> None:
    signed = Signed(ask(azure).json)
    key = signed.leaf.public_key()
    assert isinstance(key, rsa.RSAPublicKey) and key.key_size == 2048
    key.verify(signed.signer[4][1], signed.content, padding.PKCS1v15(), hashes.SHA256())
    (_, issuer), (_, serial) = parts(signed.signer[1][1])
    assert signed.leaf.issuer.public_bytes().endswith(issuer)
    assert int.from_bytes(serial, "big") == signed.leaf.serial_number


def test_the_chain_leads_to_the_root_that_the_control_call_shows(azure: Simulated) -> None:
    leaf = Signed(ask(azure).json).leaf
    shown = azure.control("GET", "authority").json
    root = x509.load_pem_x509_certificate(shown["root"].encode())
    intermediate = x509.load_pem_x509_certificate(shown["intermediate"].encode())
    for name in ("norwaywest.metadata.azure.com", "metadata.azure.com"):
        verifier = PolicyBuilder().store(Store([root])).time(START).build_server_verifier(x509.DNSName(name))
        assert verifier.verify(leaf, [intermediate]) == [leaf, intermediate, root]
    uses = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(uses) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_the_intermediate_is_where_the_leaf_says(azure: Simulated) -> None:
    leaf = Signed(ask(azure).json).leaf
    [where] = leaf.extensions.get_extension_for_class(x509.AuthorityInformationAccess).value
    assert where.access_location.value == f"{azure.url}/control/authority/intermediate.cer"
    answer = azure.control("GET", "authority/intermediate.cer")
    assert answer.headers["content-type"] == "application/pkix-cert"
    leaf.verify_directly_issued_by(x509.load_der_x509_certificate(answer.body))


def test_each_machine_is_vouched_for_and_a_classic_one_has_an_id_here() -> None:
    whole = west_norway()
    del whole["sets"][1]["machines"][0]["vm_id"]
    with simulator(whole) as azure:
        ids = [Signed(ask(azure, vm).json).document["vmId"] for vm in ("WestNO_0", "WestNO_1", "FrontEnd_IN_0")]
    assert ids[:2] == ["WestNO_0-vm-id", "WestNO_1-vm-id"] and len(ids[2]) == 36


def test_a_leaf_is_renewed_however_the_clock_is_moved() -> None:
    with simulator() as azure:
        serials = set()
        for days in (0, 30, 200, -300):
            azure.clock.advance(days * 86400)
            leaf = Signed(ask(azure).json).leaf
            assert leaf.not_valid_before_utc < azure.clock.now() < leaf.not_valid_after_utc
            serials.add(leaf.serial_number)
    assert len(serials) == 3, "the one of the first day did for the thirtieth"


def test_without_the_library_only_this_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "azure_simulator.attestation_chain", None)
    with pytest.raises(attestation.UnavailableError, match="cryptography"):
        attestation.Authority().shown(START)
    with simulator() as azure:
        assert azure.get("WestNO_0").status == 200
        assert ask(azure).status == azure.control("GET", "authority").status == 503
