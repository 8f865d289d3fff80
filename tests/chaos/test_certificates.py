"""A certificate for one run: its files, who trusts it, and that nothing of it stays."""

from __future__ import annotations

import ssl
from pathlib import Path

from ops.chaos.certificates import caller_context, can_be_made, certificate_files


def test_a_certificate_is_there_while_its_block_lasts() -> None:
    """A server can use it, and its key fits."""
    assert can_be_made()
    with certificate_files() as files:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*files)
    assert not any(Path(each).exists() for each in files)


def test_a_caller_trusts_whoever_has_signed_it() -> None:
    """And nobody without a certificate."""
    context = caller_context("h2")
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.get_ca_certs()
