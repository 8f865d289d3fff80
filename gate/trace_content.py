"""What a trace keeps of content: all of it, its structure, or lengths and keyed digests; and what it says of a request and of a configuration."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from gate.config import FILTER_KEYS, GatewayConfig, RecordContent
from gate.trace import Answered, Part, Read, Record, Request, digest_of
from gate.trace_redaction import redacted, unhurried

__all__ = ["alias_of", "config_tables", "sealed_content", "shape_of"]

REQUEST_BYTES_MAX: Final = 1_048_576  # of a body that is parsed for its shape
_VALUE: Final = re.compile(r"=[^&]*")

# ---- content ------------------------------------------------------------------------------------


def sealed_content(
    records: Sequence[Record],
    content: RecordContent,
    key: bytes,
    pause: Callable[[], object] = unhurried,
) -> list[Record]:
    """These records with no more content than `content` allows; the request gets its shape, and no value of its query, which may be a key. `pause`: as for `redacted`."""
    parts = [each for each in records if isinstance(each, Part)]
    shape = shape_of(b"".join(part.b for part in parts))
    masked = _masked(records, pause) if content == "redact" else {}
    out: list[Record] = []
    for index, record in enumerate(records):
        match record:
            case Request():
                query = _VALUE.sub("=x", record.query) if content == "full" else ""
                out.append(msgspec.structs.replace(record, shape=shape, query=query))
            case Part() | Read() if content == "redact":
                out.append(msgspec.structs.replace(record, b=masked[index]))
            case Part() | Read() if content == "hash" and record.b:
                out.append(msgspec.structs.replace(record, b=b"", sha=digest_of([record.b], key)))
            case Answered() if content != "full" and record.violated is not None:
                # The notes of a violation quote the answer.
                violated = {**record.violated, "notes": []}
                out.append(msgspec.structs.replace(record, violated=violated))
            case _:
                out.append(record)
    return out


def _masked(records: Sequence[Record], pause: Callable[[], object]) -> dict[int, bytes]:
    """The masked content of each record that has some: what belongs together is masked as one and cut again where it was."""
    streams: dict[int, list[int]] = defaultdict(list)
    for index, record in enumerate(records):
        if isinstance(record, Part | Read):
            streams[record.n if isinstance(record, Read) else 0].append(index)
    found: dict[int, bytes] = {}
    for indexes in streams.values():
        pieces = [_content(records[index]) for index in indexes]
        whole, at = redacted(b"".join(pieces), pause), 0
        for index, piece in zip(indexes, pieces, strict=True):
            found[index] = whole[at : at + len(piece)]
            at += len(piece)
    return found


def _content(record: Record) -> bytes:
    assert isinstance(record, Part | Read), "chosen by its type"
    return record.b


# ---- the request --------------------------------------------------------------------------------


def alias_of(body: bytes) -> str:
    """The model that a body asks for; empty where it says none that can be read."""
    value = _parsed(body).get("model")
    return value if isinstance(value, str) else ""


def shape_of(body: bytes) -> dict[str, Any]:
    """Counts and lengths of the members of a chat or Responses request, whose `input` stands for messages; empty for what is no JSON object, or too large to look at."""
    value = _parsed(body)
    if not value:
        return {}
    given = value.get("messages", value.get("input"))
    asked = [{"role": "user", "content": given}] if isinstance(given, str) else _list(given)
    messages = [each for each in asked if isinstance(each, dict)]
    lengths = [len(content) if isinstance(content := each.get("content"), str) else -1 for each in messages]  # fmt: skip
    ceiling = next((value[name] for name in _CEILINGS if name in value), None)
    return {
        "model": alias_of(body),
        "stream": value.get("stream") is True,
        "n_msgs": len(messages),
        "roles": [role if (role := each.get("role")) in _ROLES else "other" for each in messages],
        "lens": lengths,
        "n_tools": len(_list(value.get("tools"))),
        "max_tokens": ceiling if isinstance(ceiling, int) else 0,
    }


_CEILINGS: Final = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_ROLES: Final = ("system", "developer", "user", "assistant", "tool", "function")


def _parsed(body: bytes) -> dict[str, Any]:
    if len(body) > REQUEST_BYTES_MAX:
        return {}
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


# ---- the configuration --------------------------------------------------------------------------


def config_tables(config: GatewayConfig, alias: str) -> dict[str, Any]:
    """The tables that this alias depends on, with every default written out, and without anything that may be private: keys, header values, files."""
    models = [each for each in config.models if each.alias == alias]
    names = {target.provider for each in models for target in each.targets}
    route = models[0].route if models else "default"
    filters = config.routes[route].filters
    return {
        "server": {"caller_write_seconds": config.server.caller_write_seconds},
        "limits": _tables(config.limits),
        "providers": [_provider(_tables(each)) for each in config.providers if each.name in names],
        "models": [_tables(each) for each in models],
        "routes": {route: _tables(config.routes[route])},
        "filters": {name: _filter(_tables(table)) for name, table in config.filters.items() if name in filters},
        "compat": _tables(config.compat),
    }  # fmt: skip


def _provider(table: dict[str, Any]) -> dict[str, Any]:
    private = ("headers", "ca", "client_cert", "api_key_env")
    return {name: value for name, value in table.items() if name not in private}


def _filter(table: dict[str, Any]) -> dict[str, Any]:
    """Without the keys that only other kinds know: they would be refused. The options of a plug-in stand among the others."""
    own = FILTER_KEYS.get(table["kind"], frozenset())
    others = frozenset[str]().union(*FILTER_KEYS.values()) - own
    options = table.pop("options", {})
    kept = {name: value for name, value in table.items() if name not in others | {"api_key_env"}}
    return {**kept, **options}


def _tables(table: msgspec.Struct) -> dict[str, Any]:
    """As TOML would hold it: lists for tuples, and no key without a value."""
    value: dict[str, Any] = msgspec.to_builtins(table)
    plain: dict[str, Any] = _without_none(value)
    return plain


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _without_none(item) for name, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_without_none(item) for item in value]
    return value
