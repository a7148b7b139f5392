"""Certificates for tests, as files that are replaced by renaming."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import trustme

HERE = ("127.0.0.1", "localhost")


@dataclass
class Authority:
    """Issues certificates for this machine into `directory`, where `ca.pem` is its own."""

    directory: Path
    ca: trustme.CA = field(default_factory=trustme.CA)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.ca.cert_pem.write_to_path(str(self.directory / "ca.pem"))

    def issue(self, name: str, *names: str, not_after: datetime | None = None) -> bytes:
        """NAME-key.pem, then NAME.pem. Returns the certificate as connections show it (DER)."""
        issued = self.ca.issue_cert(*(names or HERE), not_after=not_after)
        self.put(f"{name}-key.pem", issued.private_key_pem.bytes())
        self.put(f"{name}.pem", b"".join(pem.bytes() for pem in issued.cert_chain_pems))
        return ssl.PEM_cert_to_DER_cert(issued.cert_chain_pems[0].bytes().decode())

    def put(self, name: str, content: bytes) -> None:
        new = self.directory / f"{name}.new"
        new.touch(mode=0o600)
        new.write_bytes(content)
        new.rename(self.directory / name)

    def context(self, shows: str | None = None) -> ssl.SSLContext:
        """A client's, that trusts this authority and shows the certificate of that name."""
        context = ssl.create_default_context(cafile=self.directory / "ca.pem")
        if shows is not None:
            context.load_cert_chain(self.directory / f"{shows}.pem", self.directory / f"{shows}-key.pem")
        return context
