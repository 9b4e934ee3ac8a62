"""Verification of a machine's identity by an attested document, which Azure signs, with nonces.

Source: "Attested data" on Microsoft's page "Azure Instance Metadata Service for virtual machines" (04/11/2023) and the
sample there: PKCS #7 with one signer and no signed attributes. Azure states sha256WithRSAEncryption as digest
algorithm. The content is JSON with `vmId` and subscription, but not the machine's name.
"""

import base64
import binascii
import hmac
import json
import re
import secrets
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import AuthorityInformationAccessOID, ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from fleet.domain.machines import pkcs7
from fleet.domain.machines.pkcs7 import REFUSED
from fleet.domain.reasons import Reason, Refused

WANTED = "intermediate-wanted"

MOST_BYTES = 16 * 1024
MOST_INTERMEDIATES = 4
SKEW = timedelta(minutes=5)
LEAST_BITS, MOST_BITS = 2048, 8192
# Of Azure's clouds, as Microsoft's page lists them.
SUBJECTS = ("metadata.azure.com", "metadata.azure.us", "metadata.azure.cn", "metadata.microsoftazure.de")
# Where issuers' certificates are fetched from, by the agent: never from anywhere else.
ISSUERS = ("www.microsoft.com", "caissuers.microsoft.com")

_URL = re.compile(rf"https?://({'|'.join(map(re.escape, ISSUERS))})/[\w./%()-]{{1,300}}", re.ASCII)
_STAMP = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d -0000", re.ASCII)
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Attested:
    """The content of a verified attested document. Both ids are in lower case."""

    vm_id: str
    subscription: str
    created_at: datetime
    expires_at: datetime
    sku: str = ""


@dataclass(frozen=True, slots=True)
class Trust:
    """Trusted root certificates, and intermediate certificates in addition to those that an agent sends.

    Intermediates only help to build a chain: they are not trusted, and are ignored after they expire.
    """

    roots: tuple[x509.Certificate, ...]
    intermediates: tuple[x509.Certificate, ...] = ()


def trust_of(certificates: Collection[x509.Certificate], hints: Collection[x509.Certificate] = ()) -> Trust:
    """Divide certificates into roots (self-signed) and intermediates. `hints` are further intermediates: a self-signed
    one is ignored.
    """
    roots = tuple(one for one in certificates if _is_self_signed(one))
    return Trust(roots, tuple(one for one in (*certificates, *hints) if not _is_self_signed(one)))


def _is_self_signed(certificate: x509.Certificate) -> bool:
    return certificate.issuer == certificate.subject


def verify(
    document: str,
    intermediates: Sequence[str],
    *,
    trust: Trust,
    now: datetime,
    judge_nonce: Callable[[str], Reason | None],
    subscriptions: Collection[str] | None,
) -> Attested:
    """Verify an attested document and return its content. `document` and `intermediates` are base64, as the agent sent
    them.

    `judge_nonce` returns what is wrong with a nonce (or None), and marks the nonce as used. `subscriptions` are the
    accepted ones (None: all). Raises Refused REFUSED with the check that failed, or Refused WANTED with the `url` of a
    missing intermediate certificate.
    """
    try:
        signed = pkcs7.read(pkcs7.decoded(document, MOST_BYTES))
        leaf = pkcs7.signer_of(signed)
        key = _check_signature(signed, leaf)
        names = _names(leaf)
        _check_use(leaf, key)
        if len(intermediates) > MOST_INTERMEDIATES:
            raise pkcs7.refusal("attested-many-intermediates", most=MOST_INTERMEDIATES)
        brought = [pkcs7.certificate(pkcs7.decoded(each, MOST_BYTES)) for each in intermediates]
        _check_chain(leaf, names[0], brought, trust, now)
        return _believed(signed.content, now, judge_nonce, subscriptions)
    except Refused:
        raise
    except Exception as error:
        raise pkcs7.refusal("attested-unreadable") from error


def _check_signature(signed: pkcs7.SignedData, leaf: x509.Certificate) -> rsa.RSAPublicKey:
    # Azure names the algorithm of the signature where that of the digest belongs.
    digests, algorithms = (pkcs7.SHA256, pkcs7.SHA256_WITH_RSA), (pkcs7.RSA, pkcs7.SHA256_WITH_RSA)
    if signed.digest not in digests or signed.algorithm not in algorithms:
        raise pkcs7.refusal("attested-algorithm")
    # Azure sends none. Where there are some, the signature is over them and not over the content.
    if signed.with_attributes:
        raise pkcs7.refusal("attested-attributes")
    key = leaf.public_key()
    if not isinstance(key, rsa.RSAPublicKey) or key.key_size > MOST_BITS:
        raise pkcs7.refusal("attested-key", least=LEAST_BITS)
    try:
        key.verify(signed.signature, signed.content, padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature as error:
        raise pkcs7.refusal("attested-signature") from error
    return key


def _names(leaf: x509.Certificate) -> list[str]:
    """Return the DNS names of Azure's metadata service in this certificate. Raises Refused if there are none."""
    try:
        named = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        raise pkcs7.refusal("attested-subject") from None
    found = [name.lower() for name in named.get_values_for_type(x509.DNSName)]
    found = [name for name in found if _NAME.fullmatch(name) and _is_azure(name)]
    if not found:
        raise pkcs7.refusal("attested-subject")
    return found


def _is_azure(name: str) -> bool:
    return any(name == subject or name.endswith(f".{subject}") for subject in SUBJECTS)


def _check_use(leaf: x509.Certificate, key: rsa.RSAPublicKey) -> None:
    if key.key_size < LEAST_BITS:
        raise pkcs7.refusal("attested-key", least=LEAST_BITS)
    try:
        uses = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        key_usage = leaf.extensions.get_extension_for_class(x509.KeyUsage).value
    except x509.ExtensionNotFound:
        raise pkcs7.refusal("attested-use") from None
    if ExtendedKeyUsageOID.SERVER_AUTH not in uses or not key_usage.digital_signature:
        raise pkcs7.refusal("attested-use")


def _check_chain(
    leaf: x509.Certificate, name: str, brought: Sequence[x509.Certificate], trust: Trust, now: datetime
) -> None:
    if not _is_current(leaf, now):
        raise pkcs7.refusal("attested-certificate-over", at=leaf.not_valid_after_utc)
    if not trust.roots:
        raise pkcs7.refusal("attested-no-roots")
    # All four that an agent may bring, those of the folders, and the root.
    verifier = (
        PolicyBuilder()
        .store(Store(list(trust.roots)))
        .time(now.replace(tzinfo=None))
        .max_chain_depth(MOST_INTERMEDIATES)
        .build_server_verifier(x509.DNSName(name))
    )
    known = [*brought, *(one for one in trust.intermediates if _is_current(one, now))]
    try:
        verifier.verify(leaf, known)
    except (VerificationError, ValueError) as error:
        # An intermediate of ours that does not fit, or whose issuer is missing, must not keep the agent from fetching.
        last = _last(leaf, brought, trust.roots)
        url = _issuer_url(last) if last is not None else ""
        if url:
            raise Refused(WANTED, Reason("attested-intermediate", url=url), url=url) from None
        raise pkcs7.refusal("attested-chain", issuer=(last or leaf).issuer.rfc4514_string()[:200]) from error


def _is_current(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc


def _last(
    leaf: x509.Certificate, known: Sequence[x509.Certificate], roots: Sequence[x509.Certificate]
) -> x509.Certificate | None:
    """Follow the issuers and return the certificate whose issuer is missing; None if the chain reaches a root."""
    here = leaf
    for _ in range(MOST_INTERMEDIATES + 1):
        if any(root.subject == here.issuer for root in roots):
            return None
        issuers = [one for one in known if one.subject == here.issuer and not _is_self_signed(one)]
        if not issuers:
            return here
        here = issuers[0]
    return here


def _issuer_url(certificate: x509.Certificate) -> str:
    """Return the URL of the issuer's certificate, if it is on one of Microsoft's hosts (`ISSUERS`); else an
    empty text.
    """
    try:
        access = certificate.extensions.get_extension_for_class(x509.AuthorityInformationAccess).value
    except (x509.ExtensionNotFound, ValueError):
        return ""
    for each in access:
        where = each.access_location.value
        # The address that an agent is to fetch contains no other host's, and nothing that leads elsewhere.
        is_issuer = each.access_method == AuthorityInformationAccessOID.CA_ISSUERS and isinstance(where, str)
        if is_issuer and _URL.fullmatch(where):
            return str(where)
    return ""


def _believed(
    content: bytes,
    now: datetime,
    judge_nonce: Callable[[str], Reason | None],
    subscriptions: Collection[str] | None,
) -> Attested:
    """Return the content of a document whose signature is valid, after checking nonce, times and subscription."""
    said = json.loads(content, object_pairs_hook=_once)
    nonce, times = said["nonce"], said["timeStamp"]
    if not isinstance(nonce, str):
        raise pkcs7.refusal("attested-nonce")
    wrong = judge_nonce(nonce)
    if wrong is not None:
        raise Refused(REFUSED, wrong)
    created, expires = _time(times["createdOn"]), _time(times["expiresOn"])
    if expires + SKEW < now or created - SKEW > now or expires < created:
        raise pkcs7.refusal("attested-expired", at=expires)
    vm_id, subscription = _uuid(said["vmId"], "attested-vm-id"), _uuid(said["subscriptionId"], "attested-subscription")
    if subscriptions is not None and subscription not in subscriptions:
        raise pkcs7.refusal("attested-subscription-strange", subscription=subscription)
    sku = said.get("sku")
    return Attested(vm_id, subscription, created, expires, sku[:100] if isinstance(sku, str) else "")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    said = dict(pairs)
    if len(said) != len(pairs):
        raise ValueError("a field occurs twice")
    return said


def _time(stamp: Any) -> datetime:
    if not isinstance(stamp, str) or not _STAMP.fullmatch(stamp):
        raise pkcs7.refusal("attested-times")
    try:
        return datetime.strptime(stamp[:17], "%m/%d/%y %H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        raise pkcs7.refusal("attested-times") from None


def _uuid(value: Any, code: str) -> str:
    if not isinstance(value, str):
        raise pkcs7.refusal(code)
    try:
        found = str(uuid.UUID(value))
    except ValueError:
        raise pkcs7.refusal(code) from None
    # No braces, no `urn:`: one way to write it.
    if found != value.lower():
        raise pkcs7.refusal(code)
    return found


# Nonces for attested documents: each contains its time and proves that it is ours.

LASTS = timedelta(seconds=60)
# Clocks of two gateways may differ by that.
AHEAD = timedelta(seconds=10)
# 32 letters and digits, which is as many as Azure takes: milliseconds since 1970, chance, and who gave it.
_TIME, _CHANCE, _MARK = 6, 4, 10


def _mark(key: bytes, said: bytes) -> bytes:
    return hmac.digest(key, said, "sha256")[:_MARK]


def new_nonce(*, key: bytes, now: datetime) -> str:
    """Return a new nonce of 32 letters and digits, which contains the time and is signed with `key`."""
    said = _milliseconds(now).to_bytes(_TIME, "big") + secrets.token_bytes(_CHANCE)
    return base64.b32encode(said + _mark(key, said)).decode()


def wrong_with(nonce: str, *, keys: Iterable[bytes], now: datetime) -> Reason | None:
    """Return why this nonce is not valid; None if Drydock created it with one of these keys less than `LASTS` ago."""
    try:
        raw = base64.b32decode(nonce.encode("ascii"))
    except (binascii.Error, ValueError):
        return Reason("attested-nonce")
    said, mark = raw[:-_MARK], raw[-_MARK:]
    if len(said) != _TIME + _CHANCE or not any(hmac.compare_digest(_mark(key, said), mark) for key in keys):
        return Reason("attested-nonce")
    given = datetime.fromtimestamp(int.from_bytes(said[:_TIME], "big") / 1000, UTC)
    if given > now + AHEAD or now - given >= LASTS:
        return Reason("attested-nonce-over", seconds=int(LASTS.total_seconds()))
    return None


def _milliseconds(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
