"""Recordings of others as traces: a raw event stream, a HAR file, a cassette of VCR's in JSON.

They know no boundaries and no times: an import makes them up, one read for each event, evenly spaced. What the gate decides is not in them either, so the
import runs the exchange once and keeps what came of it; from then on it is a trace like any other. Chat completions only.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from gate.config_check import decode_config
from gate.config_rules import ConfigInvalid
from gate.trace import (
    VERSION,
    Attempt,
    Header,
    Part,
    Read,
    Record,
    Request,
    Trace,
    Upstream,
    digest_of,
)
from gate.trace_codec import TraceInvalid, sealed, traces
from gate.trace_content import alias_of, config_tables
from ops.replay import replay

__all__ = ["IMPORT_ENDINGS", "import_file"]

IMPORT_ENDINGS: Final = (".sse", ".har", ".json")
EVERY_US: Final = 20_000  # between two reads
ALIAS: Final = "imported"
STATUSES: Final = range(200, 600)  # a request that was broken off has 0
METHOD: Final = "POST"  # the only one that the endpoint takes
_EVENT: Final = re.compile(rb".*?(?:\r\n\r\n|\n\n|\r\r|\Z)", re.DOTALL)
_RESPONSES: Final = re.compile(rb'"type"\s*:\s*"response\.')
_MODEL: Final = re.compile(rb'"model"\s*:\s*"([^"\\]{1,200})"')


class Exchange(msgspec.Struct, frozen=True):
    """What was asked and answered. `asked`: the request's body, empty where nobody kept it."""

    name: str
    answer: bytes
    asked: bytes = b""
    status: int = 200
    content_type: str = "text/event-stream"


def import_file(path: Path) -> Iterator[Trace]:
    """The chat exchanges of a file as traces. Raises `TraceInvalid`, behind those that are one, and `OSError`."""
    data = path.read_bytes()
    if path.suffix == ".sse":
        yield _trace(Exchange(path.stem, data, _asked_beside(path)))
        return
    found = list(_exchanges(path, data))
    if not found:
        raise TraceInvalid("holds no chat completion")
    wrong = []
    for exchange in found:
        try:
            yield _trace(exchange)
        except TraceInvalid as error:
            wrong.append(str(error))
    if wrong:
        raise TraceInvalid("; ".join(wrong))


def _asked_beside(path: Path) -> bytes:
    """The request of a stream, where a JSON file of the same name has one under `request`."""
    beside = path.with_suffix(".json")
    try:
        value = msgspec.json.decode(beside.read_bytes()) if beside.exists() else {}
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return b""
    asked = value.get("request") if isinstance(value, dict) else None
    if isinstance(asked, dict) and isinstance(asked.get("body"), dict):
        asked = asked["body"]
    return msgspec.json.encode(asked) if isinstance(asked, dict) else b""


# ---- captures -----------------------------------------------------------------------------------


def _exchanges(path: Path, data: bytes) -> Iterator[Exchange]:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TraceInvalid(f"is no JSON: {error}") from None
    try:
        entries, read = _entries(value)
        for number, entry in enumerate(entries, start=1):
            exchange = read(f"{path.stem}-{number}", entry)
            if exchange is not None:
                yield exchange
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise TraceInvalid(f"is no capture that is known: {error!r}") from None


def _entries(value: Any) -> tuple[list[Any], Any]:
    if "log" in value:
        return list(value["log"]["entries"]), _from_har
    return list(value["interactions"]), _from_vcr


def _from_har(name: str, entry: Mapping[str, Any]) -> Exchange | None:
    request, response = entry["request"], entry["response"]
    if not _is_chat(request.get("method"), request["url"]):
        return None
    content = response["content"]
    text = content.get("text", "")
    answer = _from_base64(text) if content.get("encoding") == "base64" else text.encode()
    asked = (request.get("postData") or {}).get("text", "").encode()
    kind = content.get("mimeType") or "text/event-stream"
    return Exchange(name, answer, asked, int(response["status"]), kind)


def _from_vcr(name: str, entry: Mapping[str, Any]) -> Exchange | None:
    request, response = entry["request"], entry["response"]
    if not _is_chat(request.get("method"), request.get("uri") or request.get("url") or ""):
        return None
    status = response["status"]
    fields = {key.lower(): value for key, value in response.get("headers", {}).items()}
    kind = fields.get("content-type", "text/event-stream")
    return Exchange(
        name,
        _body(response.get("body")),
        _body(request.get("body")),
        int(status["code"] if isinstance(status, dict) else status),
        kind[0] if isinstance(kind, list) else kind,
    )


def _body(value: Any) -> bytes:
    """A body as one of the forms in use says it."""
    if isinstance(value, dict):
        if "base64_string" in value:
            return _from_base64(value["base64_string"])
        return str(value.get("string") or "").encode()
    return str(value or "").encode()


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def _is_chat(method: str | None, url: str) -> bool:
    """Whether it asks for a completion: a browser's preflight and a list of stored ones have the same path. A capture that keeps no method has kept what was posted."""
    asks = (method or METHOD).upper() == METHOD
    return asks and urlsplit(url).path.endswith("/chat/completions")


# ---- the trace ----------------------------------------------------------------------------------


def _trace(exchange: Exchange) -> Trace:
    """The exchange, run once under the default policy with this one answer."""
    asked = exchange.asked or _made_up(exchange)
    if b'"messages"' not in asked or _RESPONSES.search(exchange.answer):
        raise TraceInvalid(f"{exchange.name} is no chat completion")
    if exchange.status not in STATUSES:
        raise TraceInvalid(f"{exchange.name} was not answered: its status is {exchange.status}")
    alias = alias_of(asked) or ALIAS
    tables = {
        "providers": [{"name": "recorded", "base_url": "http://127.0.0.1:9/v1"}],
        "models": [{"alias": alias, "targets": [{"provider": "recorded", "model": alias}]}],
        # There is one answer: what another attempt would have brought nobody knows.
        "routes": {"default": {"recovery": {"attempts_max": 1}}},
    }
    salt = digest_of([exchange.answer], b"import")
    name = re.sub(r"[^A-Za-z0-9_.:-]", "-", exchange.name)[:100] or ALIAS
    try:
        policy = decode_config(tables)
    except ConfigInvalid as error:
        raise TraceInvalid(
            f"{exchange.name} asks for a model that can't be: {error.problems[0]}"
        ) from None
    config = config_tables(policy, alias)
    header = Header(VERSION, name, {}, 0, "full", config, salt)
    (inputs,) = traces(sealed([header, *_inputs(exchange, asked)]))
    replayed = replay(inputs, policy)  # there are no hours to keep to
    (made,) = traces(sealed([header, *replayed.records]))
    return made


def _made_up(exchange: Exchange) -> bytes:
    """A request that could have had this answer."""
    found = _MODEL.search(exchange.answer)
    return msgspec.json.encode(
        {
            "model": found[1].decode(errors="replace") if found else ALIAS,
            "stream": "event-stream" in exchange.content_type,
            "messages": [{"role": "user", "content": ""}],
        }
    )


def _inputs(exchange: Exchange, asked: bytes) -> list[Record]:
    """An attempt without a digest is the answer to whatever is asked."""
    kind = (("content-type", exchange.content_type),)
    records: list[Record] = [
        Request(0, "application/json", None),
        Part(0, len(asked), True, asked),
        Attempt(1, 0, "recorded", len(asked), b""),
        Upstream(1, 0, "connected"),
        Upstream(1, EVERY_US, "head", exchange.status, kind),
    ]
    at = EVERY_US
    for found in _EVENT.finditer(exchange.answer):
        if found[0]:
            at += EVERY_US
            records.append(Read(1, at, EVERY_US, len(found[0]), found[0]))
    return [*records, Upstream(1, at, "eof")]
