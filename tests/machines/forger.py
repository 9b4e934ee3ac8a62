"""A fake Azure that signs the identity of machines, and attackers who pretend to be one of them."""

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import AuthorityInformationAccessOID, ExtendedKeyUsageOID, NameOID

from fleet.domain.machines.attestation import MOST_BYTES, Trust

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
VM_ID = "02aab8a4-74ef-476e-8182-f6d2ba4166a6"
OTHER_VM_ID = "13bbc9b5-85f0-487f-9293-07e3cb5277b7"
SUBSCRIPTION = "8d10da13-8125-4ba9-a717-bf7490507b3d"
NONCE = "A" * 32
ENVELOPED = bytes.fromhex("2a864886f70d010703")
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
    never = dict.fromkeys(
        ("content_commitment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only"), False
    )
    own = {"key_encipherment": not authority, "key_cert_sign": authority, "crl_sign": authority}
    return x509.KeyUsage(digital_signature=signs, **own, **never)


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
        "nonce": NONCE, "plan": {"name": "", "product": "", "publisher": ""},
        "timeStamp": times(stamp(NOW + timedelta(hours=6))), "vmId": VM_ID,
        "subscriptionId": SUBSCRIPTION, "sku": "22_04-lts-gen2",
    }  # fmt: skip
    return {name: value for name, value in (whole | changes).items() if value is not ...}


def times(expires: str) -> dict[str, str]:
    return {"createdOn": stamp(NOW), "expiresOn": expires}


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


@dataclass
class Forgery:
    """One way to forge a document: what is sent, with which intermediates and circumstances, and what refuses it."""

    refused_as: str
    document: Callable[[], Document | str | bytes] = Document
    intermediates: Callable[[], list[str]] | None = None
    circumstances: Callable[[], dict[str, Any]] = dict


def of_mine(code: str, intermediates: Callable[[], list[str]] | None = None, **changes: Any) -> Forgery:
    """A document that a certificate of mine signs, with these changes of what Azure has."""
    return Forgery(code, lambda: by(mine(**changes)), intermediates)


def of_azure(code: str, **changes: Any) -> Forgery:
    return Forgery(code, lambda: says(**changes))


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


def foreign(root: str) -> Callable[[], list[str]]:
    return lambda: chain_text(authority("Tests Issuing CA", "foreign", root, "foreign root", serial=8))


def not_an_authority() -> list[str]:
    """Return a chain in which a genuine certificate that is no authority issued another."""
    return chain_text(authority("Tests Issuing CA", "intermediate", "Tests Root", "root", serial=8, authority=False))


# Not Microsoft's: another address, a name that begins like it, and it as a login.
ELSEWHERE = (
    "169.254.169.254/metadata/instance", "www.microsoft.com.example.org/a.crt", "www.microsoft.com@example.org/a.crt",
)  # fmt: skip
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
    "another kind of message": Forgery("attested-not-der", altered(bytes.fromhex(SIGNED_DATA), ENVELOPED)),
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
    "a key on a curve": Forgery("attested-key", lambda: by(Certificate(key=ec_key("leaf"), serial=9))),
    "a key of 1,024 bits": Forgery("attested-key", lambda: by(Certificate(key=rsa_key(1024), serial=9))),
    "no name": of_mine("attested-subject", sans=None),
    "another subject's name": of_mine("attested-subject", sans=("www.example.org",)),
    "a name that ends like Azure's": of_mine("attested-subject", sans=("evilmetadata.azure.com",)),
    "a name that begins like Azure's": of_mine("attested-subject", sans=("metadata.azure.com.example.org",)),
    "another service of Azure's": of_mine("attested-subject", sans=("management.azure.com",)),
    "every name there is": of_mine("attested-subject", sans=("*.azure.com", "*")),
    "a certificate for signing code": of_mine("attested-use", eku=(ExtendedKeyUsageOID.CODE_SIGNING,)),
    "a certificate for clients": of_mine("attested-use", eku=(ExtendedKeyUsageOID.CLIENT_AUTH,)),
    "a certificate for anything": of_mine("attested-use", eku=None),
    "a key that signs nothing": of_mine("attested-use", digital_signature=False),
    # The chain.
    "signed by itself": Forgery("attested-chain", lambda: by(self_signed())),
    "a foreign root": of_mine("attested-chain", foreign("Foreign Root"), signed_by=ec_key("foreign")),
    "a foreign root of our root's name": of_mine("attested-chain", foreign("Tests Root"), signed_by=ec_key("foreign")),
    "a foreign root brought along": of_mine(
        "attested-chain", lambda: chain_text(authority("Foreign Root", "foreign root", "Foreign Root", "foreign root")),
        issuer="Foreign Root", signed_by=ec_key("foreign root"), url="",
    ),
    "an issuer that is no authority": Forgery("attested-chain", intermediates=not_an_authority),
    "an intermediate that has expired": Forgery(
        "attested-chain",
        intermediates=lambda: chain_text(
            authority("Tests Issuing CA", "intermediate", "Tests Root", "root", serial=8, ends=NOW - timedelta(days=1))
        ),
    ),
    "a certificate that has expired": of_mine("attested-certificate-over", ends=NOW - timedelta(seconds=1)),
    "a certificate of tomorrow": of_mine("attested-certificate-over", begins=NOW + timedelta(days=1)),
    "no intermediate, and nowhere to get it": of_mine("attested-chain", list, url=""),
    "no intermediate": Forgery("attested-intermediate", intermediates=list),
    **{f"an intermediate at {url}": of_mine("attested-chain", list, url=f"http://{url}") for url in ELSEWHERE},
    "an intermediate that is none": Forgery(
        "attested-certificate-unreadable", intermediates=lambda: [base64.b64encode(b"0" * 40).decode()]
    ),
    "five intermediates": Forgery("attested-many-intermediates", Document, lambda: chain_text(*[intermediate()] * 5)),
    "no roots here": Forgery("attested-no-roots", circumstances=lambda: {"trust": Trust(())}),
    # Azure has signed it, and yet.
    "a nonce of another caller": of_azure("attested-nonce", nonce="20261123-120000"),
    "a nonce that is a number": of_azure("attested-nonce", nonce=1),
    "no nonce": of_azure("attested-unreadable", nonce=...),
    "no JSON": Forgery("attested-unreadable", lambda: Document(content=b"vmId")),
    "a field twice": Forgery(
        "attested-unreadable",
        lambda: Document(content=json.dumps(said()).encode()[:-1] + b', "vmId": "' + OTHER_VM_ID.encode() + b'"}'),
    ),
    "nested for ever": Forgery("attested-unreadable", lambda: Document(content=b"[" * 9000)),
    "it has expired": Forgery("attested-expired", circumstances=lambda: {"now": NOW + timedelta(hours=6, minutes=6)}),
    "it is of tomorrow": Forgery("attested-expired", circumstances=lambda: {"now": NOW - timedelta(minutes=6)}),
    "it ends before it begins": of_azure("attested-expired", timeStamp=times(stamp(NOW - timedelta(minutes=1)))),
    "times of another form": of_azure("attested-times", timeStamp=times(NOW.isoformat())),
    "times of no calendar": of_azure("attested-times", timeStamp={"createdOn": "13/41/26 25:00:00 -0000"}),
    "no times": of_azure("attested-unreadable", timeStamp=None),
    "a vmId that is none": of_azure("attested-vm-id", vmId="vm1"),
    "a vmId in braces": of_azure("attested-vm-id", vmId="{" + VM_ID + "}"),
    "a vmId that is a list": of_azure("attested-vm-id", vmId=[VM_ID]),
    "a subscription that is none": of_azure("attested-subscription", subscriptionId="mine"),
    "no subscription": of_azure("attested-unreadable", subscriptionId=...),
    "a subscription that is not ours": of_azure("attested-subscription-strange", subscriptionId=VM_ID),
}  # fmt: skip
