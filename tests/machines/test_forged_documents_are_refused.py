"""Ways to forge an attested document: each is refused by the check that it fails. The verifier needs no database."""

import base64
import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import certifi
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from fleet.domain.machines import attestation
from fleet.domain.machines.attestation import LASTS, Attested, Trust, new_nonce, trust_of, verify, wrong_with
from fleet.domain.reasons import Reason, Refused
from fleet.wording.machines import SENTENCES
from fleet.wording.say import say
from fleet.wording.times import API
from tests.machines import forger


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
