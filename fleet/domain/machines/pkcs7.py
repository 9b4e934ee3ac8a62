"""Strict parser of DER and of the one PKCS #7 form that Azure uses.

Lenient parsers let two programs interpret the same bytes differently. This parser refuses every alternative encoding:
indefinite or overlong lengths, strings in pieces, tags of several bytes.
"""

import base64
from dataclasses import dataclass
from typing import Any

from cryptography import x509

from fleet.domain.reasons import Reason, Refused

SEQUENCE, SET, INTEGER, OCTETS, NULL, OID = 0x30, 0x31, 0x02, 0x04, 0x05, 0x06
CONSTRUCTED = 0x20
# As deep as anything is that is read here, with room.
MOST_DEPTH = 16


class NotDer(ValueError):
    """Error: the bytes are not DER, or not in the expected form."""


@dataclass(frozen=True, slots=True)
class Value:
    """One DER value: its tag, its content, and all of its bytes."""

    tag: int
    content: bytes
    whole: bytes

    def parts(self, tag: int | None = None) -> list["Value"]:
        """Return the values inside this value. Raises NotDer if this value does not have the tag `tag`."""
        if tag is not None and self.tag != tag:
            raise NotDer(f"tag {self.tag:#x} where {tag:#x} belongs")
        found, rest = [], self.content
        while rest:
            value, rest = _first(rest)
            found.append(value)
        return found

    def of(self, tag: int) -> bytes:
        """Return the content. Raises NotDer if this value does not have the tag `tag`."""
        if self.tag != tag:
            raise NotDer(f"tag {self.tag:#x} where {tag:#x} belongs")
        return self.content

    @property
    def number(self) -> int:
        """The value as an integer. Raises NotDer if it is not an INTEGER."""
        raw = self.of(INTEGER)
        if not raw or (len(raw) > 1 and (raw[0] == 0) == (raw[1] < 0x80) and raw[0] in (0, 0xFF)):
            raise NotDer("an integer that is longer than it need be")
        return int.from_bytes(raw, "big", signed=True)


def _walk(value: Value, depth: int) -> None:
    """Check all nested values. Raises NotDer."""
    if depth > MOST_DEPTH:
        raise NotDer("too deep")
    if value.tag & CONSTRUCTED:
        # Of the types that are known here, only these two consist of others.
        if value.tag < 0x80 and value.tag not in (SEQUENCE, SET):
            raise NotDer(f"tag {value.tag:#x}: in pieces")
        for part in value.parts():
            _walk(part, depth + 1)
    elif value.tag in (SEQUENCE & ~CONSTRUCTED, SET & ~CONSTRUCTED):
        raise NotDer(f"tag {value.tag:#x}: no parts")


def _first(raw: bytes) -> tuple[Value, bytes]:
    if len(raw) < 2:
        raise NotDer("cut short")
    tag, length, begin = raw[0], raw[1], 2
    if tag & 0x1F == 0x1F or tag == 0:
        raise NotDer(f"tag {tag:#x}")
    if length >= 0x80:
        count = length & 0x7F
        if not 1 <= count <= 3:
            raise NotDer("a length that is indefinite or too large")
        begin += count
        written = raw[2:begin]
        length = int.from_bytes(written, "big")
        if len(written) < count or written[0] == 0 or length < 0x80:
            raise NotDer("a length that is longer than it need be")
    end = begin + length
    if end > len(raw):
        raise NotDer("cut short")
    return Value(tag, raw[begin:end], raw[:end]), raw[end:]


# PKCS #7 in the one shape in which Azure writes it: one signer, one certificate of that signer, no attributes.

REFUSED = "attestation-refused"

SHA256 = bytes.fromhex("608648016503040201")
SHA256_WITH_RSA = bytes.fromhex("2a864886f70d01010b")
RSA = bytes.fromhex("2a864886f70d010101")
_SIGNED_DATA = bytes.fromhex("2a864886f70d010702")
_DATA = bytes.fromhex("2a864886f70d010701")


@dataclass(frozen=True, slots=True)
class SignedData:
    """The parts of a PKCS #7 document. The signature is not verified yet."""

    content: bytes
    certificates: tuple[x509.Certificate, ...]
    issuer: bytes
    serial: int
    digest: bytes
    with_attributes: bool
    algorithm: bytes
    signature: bytes


def refusal(code: str, **values: Any) -> Refused:
    return Refused(REFUSED, Reason(code, **values))


def decoded(text: str, most: int) -> bytes:
    # Four characters are three bytes.
    if len(text) > most * 4 // 3 + 4:
        raise refusal("attested-too-large", most=most)
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        raise refusal("attested-not-base64") from None
    if len(raw) > most:
        raise refusal("attested-too-large", most=most)
    return raw


def certificate(raw: bytes) -> x509.Certificate:
    try:
        return x509.load_der_x509_certificate(raw)
    # The latter is no ValueError.
    except (ValueError, x509.InvalidVersion) as error:
        raise refusal("attested-certificate-unreadable") from error


def read(raw: bytes) -> SignedData:
    """Parse a PKCS #7 document in the one form that Azure uses. Raises Refused `attestation-refused` for any other
    form.
    """
    try:
        whole, behind = _first(raw)
        if behind:
            raise NotDer("something stands behind it")
        _walk(whole, 0)
        kind, wrapped = whole.parts(SEQUENCE)
        (signed,) = wrapped.parts(0xA0)
        version, digests, enclosed, *rest = signed.parts(SEQUENCE)
        data, *content = enclosed.parts(SEQUENCE)
        if kind.of(OID) != _SIGNED_DATA or data.of(OID) != _DATA or version.number != 1:
            raise NotDer("no signed data")
        signers = rest.pop().parts(SET)
    except (NotDer, ValueError, IndexError):
        raise refusal("attested-not-der") from None
    if not content:
        raise refusal("attested-detached")
    if len(signers) != 1:
        raise refusal("attested-signers", count=len(signers))
    try:
        digests.parts(SET)
        (octets,) = content[0].parts(0xA0)
        # Certificates alone may stand between: no lists of revoked ones.
        (bag,) = rest
        certificates = tuple(certificate(one.whole) for one in bag.parts(0xA0))
        return _signer_info(signers[0], octets.of(OCTETS), certificates)
    except (NotDer, ValueError, IndexError):
        raise refusal("attested-not-der") from None


def _signer_info(info: Value, content: bytes, certificates: tuple[x509.Certificate, ...]) -> SignedData:
    version, named, digest, *rest = info.parts(SEQUENCE)
    if version.number != 1:
        raise NotDer("a signer that is named by something else than issuer and serial number")
    issuer, serial = named.parts(SEQUENCE)
    issuer.parts(SEQUENCE)
    with_attributes = any(part.tag in (0xA0, 0xA1) for part in rest)
    algorithm, signature = [part for part in rest if part.tag not in (0xA0, 0xA1)]
    return SignedData(
        content=content,
        certificates=certificates,
        issuer=issuer.whole,
        serial=serial.number,
        digest=_algorithm(digest),
        with_attributes=with_attributes,
        algorithm=_algorithm(algorithm),
        signature=signature.of(OCTETS),
    )


def _algorithm(value: Value) -> bytes:
    """Return the object identifier of an algorithm. Raises Refused if the algorithm has parameters."""
    name, *parameters = value.parts(SEQUENCE)
    if parameters and [one.whole for one in parameters] != [b"\x05\x00"]:
        raise refusal("attested-algorithm")
    return name.of(OID)


def signer_of(signed: SignedData) -> x509.Certificate:
    """Return the signer's certificate from those in the document. Raises Refused unless exactly one matches."""
    found = [
        one
        for one in signed.certificates
        if one.issuer.public_bytes() == signed.issuer and one.serial_number == signed.serial
    ]
    if len(found) != 1:
        raise refusal("attested-signer-certificate", count=len(found))
    return found[0]
