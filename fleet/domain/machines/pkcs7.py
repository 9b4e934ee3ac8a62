"""PKCS #7 in the one shape in which Azure writes it: one signer, one certificate of that signer, no attributes.

What is read here is not believed yet: `attestation` checks who has signed it.
"""

import base64
from dataclasses import dataclass
from typing import Any

from cryptography import x509

from fleet.domain.machines import der
from fleet.domain.reason import Reason
from fleet.domain.refusal import Refused

REFUSED = "attestation-refused"

SHA256 = bytes.fromhex("608648016503040201")
SHA256_WITH_RSA = bytes.fromhex("2a864886f70d01010b")
RSA = bytes.fromhex("2a864886f70d010101")
_SIGNED_DATA = bytes.fromhex("2a864886f70d010702")
_DATA = bytes.fromhex("2a864886f70d010701")


@dataclass(frozen=True, slots=True)
class SignedData:
    """What a document consists of, before anything is known of who signed it."""

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
    """The parts of the one shape that Azure writes."""
    try:
        kind, wrapped = der.read(raw).parts(der.SEQUENCE)
        (signed,) = wrapped.parts(0xA0)
        version, digests, enclosed, *rest = signed.parts(der.SEQUENCE)
        data, *content = enclosed.parts(der.SEQUENCE)
        if kind.of(der.OID) != _SIGNED_DATA or data.of(der.OID) != _DATA or version.number != 1:
            raise der.NotDer("no signed data")
        signers = rest.pop().parts(der.SET)
    except (der.NotDer, ValueError, IndexError):
        raise refusal("attested-not-der") from None
    if not content:
        raise refusal("attested-detached")
    if len(signers) != 1:
        raise refusal("attested-signers", count=len(signers))
    try:
        digests.parts(der.SET)
        (octets,) = content[0].parts(0xA0)
        # Certificates alone may stand between: no lists of revoked ones.
        (bag,) = rest
        certificates = tuple(certificate(one.whole) for one in bag.parts(0xA0))
        return _signer_info(signers[0], octets.of(der.OCTETS), certificates)
    except (der.NotDer, ValueError, IndexError):
        raise refusal("attested-not-der") from None


def _signer_info(info: der.Value, content: bytes, certificates: tuple[x509.Certificate, ...]) -> SignedData:
    version, named, digest, *rest = info.parts(der.SEQUENCE)
    if version.number != 1:
        raise der.NotDer("a signer that is named by something else than issuer and serial number")
    issuer, serial = named.parts(der.SEQUENCE)
    issuer.parts(der.SEQUENCE)
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
        signature=signature.of(der.OCTETS),
    )


def _algorithm(value: der.Value) -> bytes:
    """The name of an algorithm, which has no parameters."""
    name, *parameters = value.parts(der.SEQUENCE)
    if parameters and [one.whole for one in parameters] != [b"\x05\x00"]:
        raise refusal("attested-algorithm")
    return name.of(der.OID)


def signer_of(signed: SignedData) -> x509.Certificate:
    """The certificate that the signer names, wherever it stands in the bag."""
    found = [
        one
        for one in signed.certificates
        if one.issuer.public_bytes() == signed.issuer and one.serial_number == signed.serial
    ]
    if len(found) != 1:
        raise refusal("attested-signer-certificate", count=len(found))
    return found[0]
