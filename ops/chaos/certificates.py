"""A certificate for the callers of ring 3, made for one run. It takes the package `trustme`, which comes with the tests."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

__all__ = ["HOST", "caller_context", "can_be_made", "certificate_files"]

HOST: Final = "gate.example"


def can_be_made() -> bool:
    """Whether there is what it takes."""
    return find_spec("trustme") is not None


@functools.cache
def _made() -> tuple[Any, Any]:
    """Whom callers trust, and what that one has signed: once in a process, since it costs a tenth of a second."""
    import trustme  # noqa: PLC0415 - not installed with the command

    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    return authority, authority.issue_cert(HOST, key_type=trustme.KeyType.ECDSA)


@contextmanager
def certificate_files() -> Iterator[tuple[str, str]]:
    """The PEM files of the certificate and of its key, while the block lasts."""
    _, certificate = _made()
    with TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("certificate.pem", "key.pem")]
        files[0].write_bytes(b"".join(each.bytes() for each in certificate.cert_chain_pems))
        certificate.private_key_pem.write_to_path(str(files[1]))
        yield str(files[0]), str(files[1])


def caller_context(*protocols: str) -> ssl.SSLContext:
    """For a caller that trusts the certificate, and speaks these protocols."""
    authority, _ = _made()
    context = ssl.create_default_context()
    authority.configure_trust(context)
    context.set_alpn_protocols(protocols)
    return context
