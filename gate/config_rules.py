"""What can be wrong with one value of the configuration, and how that is said.

Each rule takes the TOML path of the value and the value, and yields a ``Problem`` for each thing
that is wrong with it: none for a good one. A rule that refuses what may be a secret in the wrong
place does not repeat it.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
import urllib.parse
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from gate.refs import MODEL_CHARS_MAX, is_stable_token

ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
BARE_KEY: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
URL_CHARS: Final = re.compile(r"[!-~]{1,2048}")
PORT_MAX: Final = 65_535

# RFC 9110 §5.6.2 (token) and §5.5 (field value, less obs-text and outer white space).
HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
HEADER_VALUE: Final = re.compile(r"[!-~](?:[\t -~]{0,4094}[!-~])?")
# Built by the gateway for every request, or a matter of the connection: RFC 9110 §7.6.1.
OWN_HEADERS: Final[frozenset[str]] = frozenset(
    {
        "accept",
        "accept-encoding",
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "idempotency-key",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-request-id",
    }
)


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong: the TOML path of the key (or a file) and a sentence without it."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class ConfigInvalid(Exception):
    """A configuration that is not used; ``problems`` is never empty, ``str`` has one per line."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        assert problems
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


def parse_bind(text: str) -> tuple[str, int]:
    """``host:port`` or ``[v6]:port`` as (host without brackets, port 0..65535); ``ValueError``."""
    host, _, port = text.rpartition(":")
    if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > PORT_MAX:
        raise ValueError("must be host:port or [v6]:port, with a port up to 65535")
    try:
        if host.startswith("[") and host.endswith("]"):
            return str(ipaddress.IPv6Address(host[1:-1])), int(port)
        if re.fullmatch(r"[0-9.]+", host):
            return str(ipaddress.IPv4Address(host)), int(port)
    except ValueError:
        raise ValueError("must begin with an address that exists") from None
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,253}", host):
        raise ValueError("must be host:port or [v6]:port, with a host name or an address")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Does only this machine reach a listener on ``host``? A name counts only if ``localhost``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def join(path: str, name: str) -> str:
    """``path.name``; a name that a bare TOML key can't spell is quoted, a long one is cut."""
    shown = name if BARE_KEY.fullmatch(name) else ascii(name[:128])
    return f"{path}.{shown}" if path else shown


def hint(value: object, known: Collection[str]) -> str:
    """`` (did you mean ...?)`` where one of ``known`` is close to ``value``, else nothing."""
    close = difflib.get_close_matches(value[:256], known, n=1) if isinstance(value, str) else []
    return f" (did you mean {close[0]}?)" if close else ""


def token(path: str, value: str) -> Iterator[Problem]:
    """A stable token: safe to log, to label a metric with and to return."""
    if not is_stable_token(value):
        yield Problem(path, "must be 1 to 128 characters of a-z 0-9 . _ : -")


def model_name(path: str, value: str) -> Iterator[Problem]:
    """A name that callers or providers gave: printable, without white space."""
    fits = 1 <= len(value) <= MODEL_CHARS_MAX
    if not fits or not value.isprintable() or re.search(r"\s", value):
        yield Problem(path, "must be 1 to 256 printable characters without white space")


def env_name(path: str, value: str) -> Iterator[Problem]:
    """The name of an environment variable; empty is for the caller of this rule to judge."""
    if value and not ENV_NAME.fullmatch(value):
        yield Problem(path, "must be the name of an environment variable")


def known_name(path: str, value: str, known: Collection[str], *, noun: str) -> Iterator[Problem]:
    """A reference to something that the same file declares."""
    if value not in known:
        yield Problem(path, f"unknown {noun} {value[:MODEL_CHARS_MAX]!a}{hint(value, known)}")


def unique(values: Sequence[str], path: str, *, leaf: str = "") -> Iterator[Problem]:
    """No value stands twice; the path of the value at index i is ``path[i]`` and ``leaf``."""
    first: dict[str, int] = {}
    for index, value in enumerate(values):
        if value in first:
            reason = f"stands already at {path}[{first[value]}]{leaf}"
            yield Problem(f"{path}[{index}]{leaf}", reason)
        first.setdefault(value, index)


def bind(path: str, value: str) -> Iterator[Problem]:
    """An address to listen at."""
    try:
        parse_bind(value)
    except ValueError as error:
        yield Problem(path, str(error))


def url(
    path: str, value: str, *, schemes: tuple[str, ...] = ("http", "https")
) -> Iterator[Problem]:
    """An absolute URL that names a server, and nothing that belongs to a single request."""
    if not URL_CHARS.fullmatch(value):
        yield Problem(path, "must be a URL of 1 to 2048 printable ASCII characters")
        return
    if not _names_server(value, schemes):
        yield Problem(path, f"must be an absolute URL with {' or '.join(schemes)} and a host")
    elif "@" in urllib.parse.urlsplit(value).netloc:
        yield Problem(path, "must not carry a user or a password")
    elif "?" in value or "#" in value:
        yield Problem(path, "must not carry a query or a fragment")


def _names_server(value: str, schemes: tuple[str, ...]) -> bool:
    try:
        parts = urllib.parse.urlsplit(value)
        return parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def static_headers(path: str, headers: Mapping[str, str]) -> Iterator[Problem]:
    """Headers that go with every request to a provider, none of them one that we write."""
    seen: set[str] = set()
    for name, value in headers.items():
        if not HEADER_NAME.fullmatch(name):
            yield Problem(join(path, name), "is not the name of a header")
        elif name.lower() in OWN_HEADERS:
            yield Problem(join(path, name), "is written by the gateway itself")
        elif name.lower() in seen:
            yield Problem(join(path, name), "stands twice; case makes no difference")
        elif value and not HEADER_VALUE.fullmatch(value):
            reason = "must be printable ASCII without outer white space, at most 4096 characters"
            yield Problem(join(path, name), reason)
        seen.add(name.lower())
