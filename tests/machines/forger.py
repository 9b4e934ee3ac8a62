"""A fake Azure that signs the identity of machines, and attackers who pretend to be one of them."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import AuthorityInformationAccessOID, ExtendedKeyUsageOID, NameOID

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
VM_ID = "02aab8a4-74ef-476e-8182-f6d2ba4166a6"
OTHER_VM_ID = "13bbc9b5-85f0-487f-9293-07e3cb5277b7"
SUBSCRIPTION = "8d10da13-8125-4ba9-a717-bf7490507b3d"
NONCE = "A" * 32
DATA, SIGNED_DATA = "2a864886f70d010701", "2a864886f70d010702"
SHA256_WITH_RSA, RSA, RSA_PSS = "2a864886f70d01010b", "2a864886f70d010101", "2a864886f70d01010a"
SHA256, SHA1, MD5 = "608648016503040201", "2b0e03021a", "2a864886f70d0205"
ISSUER_URL = "http://www.microsoft.com/pkiops/certs/Tests%20Issuing%20CA%2001%20-%20xsign.crt"

Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@cache
def rsa_key(bits: int = 2048, name: str = "") -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


@cache
def ec_key(name: str) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def name_of(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """A certificate as it is to be made; what is not said is as Azure has it."""

    subject: str = "eastus.metadata.azure.com"
    issuer: str = "Tests Issuing CA"
    key: Key = field(default_factory=rsa_key)
    signed_by: Key = field(default_factory=lambda: ec_key("intermediate"))
    authority: bool = False
    sans: Sequence[str] | None = ("eastus.metadata.azure.com", "metadata.azure.com")
    eku: Sequence[x509.ObjectIdentifier] | None = (ExtendedKeyUsageOID.SERVER_AUTH,)
    digital_signature: bool | None = True
    url: str = ISSUER_URL
    begins: datetime = NOW - timedelta(days=30)
    ends: datetime = NOW + timedelta(days=150)
    serial: int = 4711

    def made(self) -> x509.Certificate:
        public = self.key.public_key()
        built = x509.CertificateBuilder().subject_name(name_of(self.subject)).issuer_name(name_of(self.issuer))
        built = built.public_key(public).serial_number(self.serial)
        built = built.not_valid_before(self.begins).not_valid_after(self.ends)
        built = built.add_extension(x509.BasicConstraints(ca=self.authority, path_length=None), critical=True)
        built = built.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        by = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.signed_by.public_key())
        built = built.add_extension(by, critical=False)
        if self.sans is not None:
            names = [x509.DNSName(each) for each in self.sans]
            built = built.add_extension(x509.SubjectAlternativeName(names), critical=False)
        if self.eku is not None:
            built = built.add_extension(x509.ExtendedKeyUsage(self.eku), critical=False)
        if self.digital_signature is not None:
            built = built.add_extension(_usage(self.digital_signature, self.authority), critical=True)
        if self.url:
            where = x509.UniformResourceIdentifier(self.url)
            access = x509.AccessDescription(AuthorityInformationAccessOID.CA_ISSUERS, where)
            built = built.add_extension(x509.AuthorityInformationAccess([access]), critical=False)
        return built.sign(self.signed_by, hashes.SHA256())


def _usage(signs: bool, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=signs,
        content_commitment=False,
        key_encipherment=not authority,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def authority(subject: str, key: str, issuer: str, signed_by: str, **changes: Any) -> x509.Certificate:
    """Of an authority; a root signs itself."""
    same: dict[str, Any] = {"authority": True, "sans": None, "eku": None, "digital_signature": False, "url": ""}
    wanted = same | {"ends": NOW + timedelta(days=3000), "serial": 7} | changes
    return Certificate(subject=subject, issuer=issuer, key=ec_key(key), signed_by=ec_key(signed_by), **wanted).made()


@cache
def root() -> x509.Certificate:
    return authority("Tests Root", "root", "Tests Root", "root")


@cache
def intermediate() -> x509.Certificate:
    return authority("Tests Issuing CA", "intermediate", "Tests Root", "root", serial=8)


@cache
def leaf() -> x509.Certificate:
    return Certificate().made()


def der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    if len(content) < 0x80:
        return bytes([tag, len(content)]) + content
    length = len(content).to_bytes((len(content).bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def oid(name: str) -> bytes:
    return der(6, bytes.fromhex(name))


def algorithm(name: str, parameters: bytes = b"\x05\x00") -> bytes:
    return der(0x30, oid(name), parameters)


def whole_number(number: int) -> bytes:
    return der(2, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def said(**changes: Any) -> dict[str, Any]:
    """What Azure signs of our machine."""
    whole = {
        "nonce": NONCE,
        "plan": {"name": "", "product": "", "publisher": ""},
        "timeStamp": {"createdOn": stamp(NOW), "expiresOn": stamp(NOW + timedelta(hours=6))},
        "vmId": VM_ID,
        "subscriptionId": SUBSCRIPTION,
        "sku": "22_04-lts-gen2",
    }
    return {name: value for name, value in (whole | changes).items() if value is not ...}


def stamp(at: datetime) -> str:
    return at.strftime("%m/%d/%y %H:%M:%S -0000")


@dataclass(frozen=True, kw_only=True)
class Document:
    """An attested document, part by part. What is not changed is as Azure writes it."""

    content: bytes = field(default_factory=lambda: json.dumps(said()).encode())
    # Over which the signature is, where that is something else.
    signed: bytes | None = None
    leaf: x509.Certificate = field(default_factory=leaf)
    key: Any = field(default_factory=rsa_key)
    bag: Sequence[x509.Certificate] | None = None
    version: int = 1
    signer_version: int = 1
    digest: bytes = algorithm(SHA256_WITH_RSA)
    algorithm: bytes = algorithm(RSA)
    attributes: bytes = b""
    behind: bytes = b""
    revoked: bytes = b""
    hash: hashes.HashAlgorithm = field(default_factory=hashes.SHA256)
    serial: int | None = None
    signers: int = 1
    content_part: bytes | None = None
    signature: bytes | None = None

    def raw(self) -> bytes:
        over = self.content if self.signed is None else self.signed
        signature = self.signature
        if signature is None:
            if isinstance(self.key, rsa.RSAPrivateKey):
                signature = self.key.sign(over, padding.PKCS1v15(), self.hash)
            else:
                signature = self.key.sign(over, ec.ECDSA(self.hash))
        serial = self.leaf.serial_number if self.serial is None else self.serial
        signer = der(
            0x30,
            whole_number(self.signer_version),
            der(0x30, self.leaf.issuer.public_bytes(), whole_number(serial)),
            self.digest,
            self.attributes,
            self.algorithm,
            der(4, signature),
            self.behind,
        )
        bag = (self.leaf,) if self.bag is None else self.bag
        content = der(0xA0, der(4, self.content)) if self.content_part is None else self.content_part
        signed = der(
            0x30,
            whole_number(self.version),
            der(0x31, self.digest),
            der(0x30, oid(DATA), content),
            der(0xA0, *(one.public_bytes(serialization.Encoding.DER) for one in bag)) if bag else b"",
            self.revoked,
            der(0x31, *([signer] * self.signers)),
        )
        return der(0x30, oid(SIGNED_DATA), der(0xA0, signed))

    def text(self) -> str:
        return base64.b64encode(self.raw()).decode()


def says(**changes: Any) -> Document:
    """Azure signs what is changed: only for what it would never write itself."""
    return Document(content=json.dumps(said(**changes)).encode())


def by(certificate: Certificate, **changes: Any) -> Document:
    """Signed by another certificate, with its own key."""
    return replace(Document(), leaf=certificate.made(), key=certificate.key, **changes)


def chain_text(*certificates: x509.Certificate) -> list[str]:
    return [base64.b64encode(one.public_bytes(serialization.Encoding.DER)).decode() for one in certificates]
