"""Certificates for tests: an authority of their own, and servers that it vouches for."""

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates; its own lies at `path`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
        self.path = folder / "authority.pem"
        self.path.write_bytes(self.signed(self.name, self.key, authority=True))

    def signed(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *, authority: bool = False, host: str = ""
    ) -> bytes:
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if host:
            named: x509.GeneralName = x509.DNSName(host)
            if host[0].isdecimal():
                named = x509.IPAddress(ip_address(host))
            made = made.add_extension(x509.SubjectAlternativeName([named]), critical=False)
        return made.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def server(self, host: str) -> ssl.SSLContext:
        """For a server of this name or address."""
        key = ec.generate_private_key(ec.SECP256R1())
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = self.folder / f"{host}.pem"
        path.write_bytes(pem + self.signed(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)]), key, host=host))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context
