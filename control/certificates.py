"""Certificates that are replaced on disk without a restart: new connections take the new ones, if they are good.

A file is looked at when a connection comes, at most once in LOOK_S. What is found is tried whole before it is taken:
the key has to fit, the certificate must not have run out. Else the last good one stays, and `trouble` says why.
"""

from __future__ import annotations

import logging
import socket
import ssl
import stat
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from homing.control.reload import Signature, signature
from homing.core.config.models import EngineConfig
from homing.core.config.secret import SecretRef
from homing.core.config.tls import ClientTls, ServerTls

LOOK_S = 0.5

T = TypeVar("T")

log = logging.getLogger(__name__)


class CertificateError(Exception):
    """A certificate cannot be used. Its text is one line: which file, and why."""


@dataclass(frozen=True, slots=True)
class Files:
    """In PEM. `ca`: whom to trust; None: the system's for a client, nobody for a server (no client is asked)."""

    cert: Path | None
    key: Path | None
    ca: Path | None

    @classmethod
    def of(cls, said: ServerTls | ClientTls | EngineConfig, beside: Path) -> Files:
        """`beside`: the file that says so."""

        def path(ref: SecretRef | None) -> Path | None:
            return None if ref is None else beside.parent.absolute() / ref.name

        return cls(path(said.cert), path(said.key), path(said.client_ca if isinstance(said, ServerTls) else said.ca))

    def __iter__(self) -> Iterator[Path]:
        return (path for path in (self.cert, self.key, self.ca) if path is not None)

    def signatures(self) -> tuple[Signature | None, ...]:
        return tuple(map(signature, self))


class Certificates(Generic[T]):
    """The newest good content of some files, made usable by `make`. May be asked on any thread."""

    def __init__(
        self, name: str, files: Files, make: Callable[[Files], T], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`name` is for people. Raises CertificateError when there is nothing good to begin with."""
        self.name = name
        self.trouble = ""
        """Why what is on the disk now is not used; empty when it is."""
        self._files = files
        self._make = make
        self._clock = clock
        self._lock = threading.Lock()
        self._seen = files.signatures()
        self._looked_s = clock()
        self._newest, self.expires_s = self._read()

    def newest(self) -> T:
        with self._lock:
            if self._clock() - self._looked_s >= LOOK_S:
                self._looked_s = self._clock()
                self._look()
            return self._newest

    def _look(self) -> None:
        seen = self._files.signatures()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._newest, self.expires_s = self._read()
        except CertificateError as error:
            if str(error) != self.trouble:
                log.error("%s: the certificate that was there before stays: %s", self.name, error)
            self.trouble = str(error)
            return
        self.trouble = ""
        log.info("%s: another certificate is taken", self.name)

    def _read(self) -> tuple[T, float | None]:
        """With when it runs out, in seconds since 1970; None where there is none."""
        _warn_of_readable(self._files.key)
        expires_s = tried(self._files)
        try:
            return self._make(self._files), expires_s
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise CertificateError(_why(error, *self._files)) from None


def server_context(files: Files, alpn: tuple[str, ...] = ()) -> ssl.SSLContext:
    """Raises OSError and ValueError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    assert files.cert is not None
    context.load_cert_chain(files.cert, files.key, _no_password)
    if files.ca is not None:
        context.load_verify_locations(files.ca)
        context.verify_mode = ssl.CERT_REQUIRED
    if alpn:
        context.set_alpn_protocols(alpn)
    return context


def client_context(files: Files) -> ssl.SSLContext:
    """Raises OSError and ValueError."""
    context = ssl.create_default_context(cafile=files.ca)
    if files.cert is not None:
        context.load_cert_chain(files.cert, files.key, _no_password)
    return context


class Following(ssl.SSLContext):
    """Stands where a context is wanted once and for all. Each new connection is made with the newest one."""

    certificates: Certificates[ssl.SSLContext]
    server_name: str
    """What the other side's certificate has to name, where that is not how it is called; empty else."""

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        name = self.server_name or server_hostname
        return self.certificates.newest().wrap_bio(incoming, outgoing, server_side, name, session)

    def wrap_socket(
        self,
        sock: socket.socket,
        server_side: bool = False,
        do_handshake_on_connect: bool = True,
        suppress_ragged_eofs: bool = True,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLSocket:
        name, newest = self.server_name or server_hostname, self.certificates.newest()
        return newest.wrap_socket(sock, server_side, do_handshake_on_connect, suppress_ragged_eofs, name, session)


def following(certificates: Certificates[ssl.SSLContext], *, server: bool, server_name: str = "") -> Following:
    context = Following(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.certificates, context.server_name = certificates, server_name
    return context


def tried(files: Files) -> float | None:
    """Shakes hands with itself. When the certificate runs out, in seconds since 1970; None where there is none.

    Raises CertificateError.
    """
    if files.ca is not None:
        try:
            ssl.create_default_context(cafile=files.ca)
        except (OSError, ValueError) as error:
            raise CertificateError(_why(error, files.ca)) from None
    if files.cert is None:
        return None
    try:
        server = server_context(Files(files.cert, files.key, None))
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname = False
        client.load_verify_locations(files.cert)
        client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate itself is what is trusted
        return _shaken(server, client)
    except (OSError, ValueError) as error:
        raise CertificateError(_why(error, files.cert, *([files.key] if files.key else []))) from None


def _shaken(server: ssl.SSLContext, client: ssl.SSLContext) -> float:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    theirs = client.wrap_bio(to_client, to_server)
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for end in (theirs, ours):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    found = theirs.getpeercert() or {}
    return float(ssl.cert_time_to_seconds(str(found["notAfter"])))


def _no_password() -> str:
    raise ValueError("a key with a password cannot be used")


def _why(error: OSError | ValueError, *paths: Path) -> str:
    missing = next((path for path in paths if not path.is_file()), None)
    if missing is not None:
        return f"{missing}: there is no such file"
    unreadable = next((path for path in paths if not _readable(path)), None)
    if unreadable is not None:
        return f"{unreadable}: cannot be read"
    cert = paths[0]
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{cert}: {error.verify_message}"
    reasons = {
        "KEY_VALUES_MISMATCH": "the key does not fit the certificate",
        "NO_CERTIFICATE_OR_CRL_FOUND": "there is no certificate in PEM in it",
        "None": "not a certificate and a key in PEM",
    }
    if isinstance(error, ssl.SSLError):
        reason = str(error.reason)
        said = reasons.get(reason, reason.lower().replace("_", " "))
    else:
        said = str(error)
    return f"{', '.join(map(str, paths))}: {said}"


def _readable(path: Path) -> bool:
    try:
        path.open("rb").close()
    except OSError:
        return False
    return True


def _warn_of_readable(key: Path | None) -> None:
    try:
        mode = key.stat().st_mode if key is not None else 0
    except OSError:
        return
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        log.warning("%s: others than its owner may read this key (chmod 600)", key)
