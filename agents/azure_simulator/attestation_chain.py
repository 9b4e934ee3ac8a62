"""Certificates and PKCS #7 signatures of attested documents in Azure's form. Needs the package `cryptography`.

The PKCS #7 structure is written by hand, because libraries would not write it as the sample on Microsoft's page: no
signed attributes, one certificate, and sha256WithRSAEncryption in the field for the digest algorithm.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import AuthorityInformationAccessOID, ExtendedKeyUsageOID, NameOID

_ROOT = "Azure simulator Root"
_INTERMEDIATE = "Azure simulator TLS Issuing CA"
# Long enough for tests that move the clock forward.
_ROOT_LIFE, _INTERMEDIATE_LIFE, _LEAF_LIFE = timedelta(days=7300), timedelta(days=3650), timedelta(days=183)
_SEQUENCE, _SET, _INTEGER, _OCTETS, _NULL, _TAGGED = 0x30, 0x31, 0x02, 0x04, b"\x05\x00", 0xA0
_SIGNED_DATA = bytes.fromhex("06092a864886f70d010702")
_DATA = bytes.fromhex("06092a864886f70d010701")
_SHA256_WITH_RSA = bytes.fromhex("06092a864886f70d01010b")
_RSA = bytes.fromhex("06092a864886f70d010101")


class Chain:
    """Keys and certificates of a root, an intermediate and leaves. The certificates of the authorities are valid from
    their first use.
    """

    def __init__(self, bits: int, domain: str) -> None:
        self._domain = domain
        self._root_key, self._key, self._leaf_key = (rsa.generate_private_key(65537, bits) for _ in range(3))
        self._authorities: tuple[x509.Certificate, x509.Certificate] | None = None

    def authorities(self, now: datetime) -> tuple[x509.Certificate, x509.Certificate]:
        """Return the root and the intermediate certificate."""
        if self._authorities is None:
            root = self._certificate(_name(_ROOT), self._root_key.public_key(), now, _ROOT_LIFE)
            root = root.issuer_name(_name(_ROOT)).add_extension(*_authority(None))
            intermediate = self._certificate(_name(_INTERMEDIATE), self._key.public_key(), now, _INTERMEDIATE_LIFE)
            intermediate = intermediate.issuer_name(_name(_ROOT)).add_extension(*_authority(0))
            intermediate = intermediate.add_extension(_issued_by(self._root_key), critical=False)
            intermediate = intermediate.add_extension(_FOR_SERVERS, critical=False)
            self._authorities = (
                root.add_extension(_signs_certificates(), critical=True).sign(self._root_key, hashes.SHA256()),
                intermediate.add_extension(_signs_certificates(), critical=True).sign(self._root_key, hashes.SHA256()),
            )
        return self._authorities

    def leaf(self, location: str, issuer_url: str, now: datetime) -> x509.Certificate:
        """Create the leaf certificate for the metadata service of one region, named as on Microsoft's page:
        `eastus.metadata.azure.com`.
        """
        self.authorities(now)
        region = re.sub(r"[^a-z0-9-]", "", location.lower())
        names = [f"{region}.{self._domain}", self._domain] if region else [self._domain]
        made = self._certificate(_name(names[0]), self._leaf_key.public_key(), now, _LEAF_LIFE)
        made = made.issuer_name(_name(_INTERMEDIATE))
        made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        made = made.add_extension(_usage(digital_signature=True, key_encipherment=True), critical=True)
        made = made.add_extension(_FOR_SERVERS, critical=False)
        made = made.add_extension(_issued_by(self._key), critical=False)
        where = x509.AccessDescription(
            AuthorityInformationAccessOID.CA_ISSUERS, x509.UniformResourceIdentifier(issuer_url)
        )
        made = made.add_extension(x509.AuthorityInformationAccess([where]), critical=False)
        return made.sign(self._key, hashes.SHA256())

    def pkcs7(self, content: bytes, leaf: x509.Certificate) -> bytes:
        """Return `content` with a signature and the leaf certificate, as PKCS #7 in DER."""
        digest = _der(_SEQUENCE, _SHA256_WITH_RSA, _NULL)
        serial = leaf.serial_number.to_bytes(leaf.serial_number.bit_length() // 8 + 1, "big")
        signer = _der(
            _SEQUENCE,
            _der(_INTEGER, b"\x01"),
            _der(_SEQUENCE, leaf.issuer.public_bytes(), _der(_INTEGER, serial)),
            digest,
            _der(_SEQUENCE, _RSA, _NULL),
            _der(_OCTETS, self._leaf_key.sign(content, padding.PKCS1v15(), hashes.SHA256())),
        )
        signed = _der(
            _SEQUENCE,
            _der(_INTEGER, b"\x01"),
            _der(_SET, digest),
            _der(_SEQUENCE, _DATA, _der(_TAGGED, _der(_OCTETS, content))),
            _der(_TAGGED, self.der(leaf)),
            _der(_SET, signer),
        )
        return _der(_SEQUENCE, _SIGNED_DATA, _der(_TAGGED, signed))

    def der(self, certificate: x509.Certificate) -> bytes:
        return certificate.public_bytes(serialization.Encoding.DER)

    def pem(self, certificate: x509.Certificate) -> str:
        return certificate.public_bytes(serialization.Encoding.PEM).decode()

    def _certificate(
        self, subject: x509.Name, key: rsa.RSAPublicKey, now: datetime, life: timedelta
    ) -> x509.CertificateBuilder:
        made = x509.CertificateBuilder().subject_name(subject).public_key(key)
        made = made.serial_number(x509.random_serial_number())
        # The validity begins in the past, so that tests can move the clock back.
        made = made.not_valid_before(now - life / 2).not_valid_after(now + life)
        return made.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


_FOR_SERVERS = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _authority(path_length: int | None) -> tuple[x509.BasicConstraints, bool]:
    return x509.BasicConstraints(ca=True, path_length=path_length), True


def _signs_certificates() -> x509.KeyUsage:
    return _usage(key_cert_sign=True, crl_sign=True)


def _usage(**uses: bool) -> x509.KeyUsage:
    every = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
        "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**{use: uses.get(use, False) for use in every})


def _issued_by(key: rsa.RSAPrivateKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    if len(content) < 0x80:
        return bytes([tag, len(content)]) + content
    length = len(content).to_bytes((len(content).bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content
