"""What a trace keeps of content: all of it, its structure, or lengths and keyed digests; and what it says of a request and of a configuration.

Redaction keeps every length and boundary, so that a redacted stream is cut and parsed as the real one was. It masks what it does not know: only the
vocabulary of the protocols stays as it is.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from gate.config import FILTER_KEYS, GatewayConfig, RecordContent
from gate.trace import Answered, Part, Read, Record, Request, digest_of

__all__ = ["alias_of", "config_tables", "redacted", "sealed_content", "shape_of"]

REQUEST_BYTES_MAX: Final = 1_048_576  # of a body that is parsed for its shape

# ---- content ------------------------------------------------------------------------------------


def sealed_content(records: Sequence[Record], content: RecordContent, key: bytes) -> list[Record]:
    """These records with no more content than `content` allows; the request gets its shape."""
    parts = [each for each in records if isinstance(each, Part)]
    shape = shape_of(b"".join(part.b for part in parts))
    masked = _masked(records) if content == "redact" else {}
    out: list[Record] = []
    for index, record in enumerate(records):
        match record:
            case Request():
                query = record.query if content == "full" else ""
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


def _masked(records: Sequence[Record]) -> dict[int, bytes]:
    """The masked content of each record that has some: what belongs together is masked as one and cut again where it was."""
    streams: dict[int, list[int]] = defaultdict(list)
    for index, record in enumerate(records):
        if isinstance(record, Part | Read):
            streams[record.n if isinstance(record, Read) else 0].append(index)
    found: dict[int, bytes] = {}
    for indexes in streams.values():
        pieces = [_content(records[index]) for index in indexes]
        whole, at = redacted(b"".join(pieces)), 0
        for index, piece in zip(indexes, pieces, strict=True):
            found[index] = whole[at : at + len(piece)]
            at += len(piece)
    return found


def _content(record: Record) -> bytes:
    assert isinstance(record, Part | Read), "chosen by its type"
    return record.b


# A string, closed or cut off; a number; a word; any other byte.
_TOKEN: Final = re.compile(
    rb'"(?:[^"\\\r\n]|\\[^\r\n])*(?:"|\\?)|-?[0-9][0-9.eE+-]*|[A-Za-z_][A-Za-z0-9_]*|.', re.DOTALL
)
_COLON: Final = re.compile(rb"[ \t]*:")
_ESCAPE: Final = re.compile(rb"\\u[0-9A-Fa-f]{4}|\\.|[^\\]|\\", re.DOTALL)
_DIGIT: Final = re.compile(rb"[0-9]")
_STRUCTURE: Final = frozenset(b"{}[]:, \t\r\n")
_WORDS: Final = frozenset({b"data", b"event", b"id", b"retry", b"true", b"false", b"null", b"DONE"})
_KEYS: Final = frozenset(
    b"arguments audio choices code completion_tokens completion_tokens_details content created delta error "
    b"finish_reason function function_call id include_usage index input logprobs max_completion_tokens max_tokens "
    b"message messages model n name object output param parallel_tool_calls parameters prompt prompt_tokens "
    b"prompt_tokens_details reasoning reasoning_content refusal response_format role schema stop stream "
    b"stream_options strict system_fingerprint temperature text tool_call_id tool_calls tool_choice tools top_p "
    b"total_tokens type usage "
    # and of the Responses API
    b"annotations background call_id completed_at content_index created_at format incomplete_details input_tokens input_tokens_details instructions item "
    b"item_id max_output_tokens metadata obfuscation output_index output_tokens output_tokens_details part previous_response_id reason response "
    b"sequence_number status store summary summary_index truncation".split()
)
_TOLD: Final = frozenset(b"code finish_reason model object role type".split())  # their strings
_COUNTED: Final = frozenset(  # their numbers
    b"completion_tokens content_index created created_at index input_tokens max_completion_tokens max_output_tokens max_tokens n output_index output_tokens "
    b"prompt_tokens sequence_number summary_index temperature top_p total_tokens".split()
)


def redacted(data: bytes) -> bytes:
    """`data`, event stream or JSON, with every text, name and number masked that the protocol does not know. Every byte keeps its place."""
    out: list[bytes] = []
    key = b""
    for found in _TOKEN.finditer(data):
        token = found[0]
        if token[:1] == b'"':
            inner = token[1:].removesuffix(b'"') if len(token) > 1 else b""
            is_key = bool(_COLON.match(data, found.end()))
            if is_key:
                key = inner
            plain = inner in _KEYS if is_key else key in _TOLD
            out.append(token if plain else _mask_string(token))
        elif token[:1].isdigit() or (token[:1] == b"-" and len(token) > 1):
            out.append(token if key in _COUNTED else _DIGIT.sub(b"1", token))
        elif token[:1].isalpha() or token[:1] == b"_":
            out.append(token if token in _WORDS else b"x" * len(token))
        else:
            out.append(token if token[0] in _STRUCTURE else b"x")
    return b"".join(out)


def _mask_string(token: bytes) -> bytes:
    closed = token[1:].endswith(b'"') and len(token) > 1
    inner = token[1:-1] if closed else token[1:]
    return b'"' + _ESCAPE.sub(_mask_piece, inner) + (b'"' if closed else b"")


def _mask_piece(found: re.Match[bytes]) -> bytes:
    piece = found[0]
    if piece[:1] != b"\\":
        return b"x"
    return b"\\u0078" if piece[1:2] == b"u" and len(piece) > 2 else piece


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
