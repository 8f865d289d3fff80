"""Trace files in every encoding, and what others recorded as traces."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gate.trace import Read, Term, Trace
from gate.trace_codec import TraceInvalid
from ops.replay import differences, replay
from ops.trace import count_traces, files_of, read_traces, write_traces
from tests.doubles import DONE, ROLE, STOP, ScriptedProvider, healthy, text
from tests.tracing import Recording, tables, take

STREAM = ROLE + text("Hi") + STOP + DONE
ASKED = {"model": "mine", "stream": True, "messages": [{"role": "user", "content": "Hello"}]}
EVENTS = "text/event-stream"


def trace() -> Trace:
    return take(Recording(tables(1), [ScriptedProvider(healthy("Hi"))]))


def term(found: Trace) -> Term:
    (said,) = (each for each in found.records if isinstance(each, Term))
    return said


@pytest.mark.parametrize("name", ["a.trace", "a.jsonl", "a.trace.gz", "a.jsonl.gz"])
def test_traces_come_back_from_a_file_of_any_ending(tmp_path: Path, name: str) -> None:
    """Two of them, counted without being decoded."""
    found = [trace(), trace()]
    path = tmp_path / name
    assert write_traces(path, found) == 2
    assert count_traces(path) == 2
    assert list(read_traces(path)) == found


def test_a_name_that_says_no_encoding_is_refused(tmp_path: Path) -> None:
    """Nothing is written."""
    with pytest.raises(TraceInvalid, match="ends in"):
        write_traces(tmp_path / "a.txt", [trace()])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_stands_for_the_traces_in_it(tmp_path: Path) -> None:
    """And the captures, in order of their names, but for JSON, which may be anything; a file that is named is taken as it is."""
    for name in ("b.trace", "a.jsonl.gz", "key", "c.txt", "d.sse", "d.json", "e.har", "f.json"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "g.trace").write_bytes(b"")
    found = [each.name for each in files_of([tmp_path, Path("c.json")])]
    assert found == ["a.jsonl.gz", "b.trace", "d.sse", "e.har", "c.json"]


def test_a_broken_archive_is_no_trace(tmp_path: Path) -> None:
    """It counts for nothing."""
    path = tmp_path / "a.trace.gz"
    path.write_bytes(gzip.compress(b"abc")[:-4])
    assert count_traces(path) == count_traces(tmp_path / "missing.trace") == 0
    with pytest.raises(TraceInvalid, match="gzip"):
        list(read_traces(path))


# --- imports -------------------------------------------------------------------------------------


def har(answer: bytes, *, url: str = "https://a.example/v1/chat/completions", status: int = 200, coded: bool = False, kind: str = EVENTS) -> bytes:  # fmt: skip
    content: dict[str, Any] = {"mimeType": kind, "text": answer.decode()}
    if coded:
        content = {
            "mimeType": kind,
            "text": base64.b64encode(answer).decode(),
            "encoding": "base64",
        }
    request = {"url": url, "postData": {"text": json.dumps(ASKED)}}
    entries = [
        {"request": {"url": "https://a.example/v1/models"}, "response": {}},
        {"request": request, "response": {"status": status, "content": content}},
    ]
    return json.dumps({"log": {"entries": entries}}).encode()


def cassette(answer: Any, *, asked: Any = None, uri: str = "uri", status: Any = None) -> bytes:
    request = {uri: "https://a.example/v1/chat/completions", "body": asked or json.dumps(ASKED)}
    response = {
        "status": status or {"code": 200},
        "headers": {"Content-Type": [EVENTS]},
        "body": answer,
    }
    other = {"request": {"uri": "https://a.example/"}, "response": response}
    return json.dumps(
        {"interactions": [other, {"request": request, "response": response}]}
    ).encode()


CAPTURES = {
    "a.sse": STREAM,
    "b.har": har(STREAM),
    "c.har": har(STREAM, coded=True),
    "d.json": cassette({"string": STREAM.decode()}),
    "e.json": cassette({"base64_string": base64.b64encode(STREAM).decode()}, status=200),
    "f.json": cassette(STREAM.decode(), asked={"string": json.dumps(ASKED)}, uri="url"),
}


@pytest.mark.parametrize("name", CAPTURES)
def test_a_capture_becomes_a_trace_that_replays(tmp_path: Path, name: str) -> None:
    """One read for each event, evenly spaced."""
    path = tmp_path / name
    path.write_bytes(CAPTURES[name])
    assert count_traces(path) == 1
    (found,) = read_traces(path)
    assert differences(found, replay(found)) == []
    reads = [each for each in found.records if isinstance(each, Read)]
    assert b"".join(each.b for each in reads) == STREAM
    assert {each.w for each in reads} == {20_000}
    assert (term(found).kind, term(found).framing) == ("success", "chat_sse")


def test_the_request_beside_a_stream_is_used(tmp_path: Path) -> None:
    """As the body itself, or under `body`; where it can't be read, one is made up."""
    path, beside = tmp_path / "a.sse", tmp_path / "a.json"
    path.write_bytes(STREAM)
    for content in (json.dumps({"request": ASKED}), json.dumps({"request": {"body": ASKED}})):
        beside.write_text(content)
        (found,) = read_traces(path)
        assert found.header.config["models"][0]["alias"] == "mine"
    for content in ("{", "[]", '{"request": 7}'):
        beside.write_text(content)
        (found,) = read_traces(path)
        assert found.header.config["models"][0]["alias"] == "m"


def test_an_error_or_a_cut_stream_ends_as_the_gate_would_end_it(tmp_path: Path) -> None:
    """With the one attempt that is known."""
    refused = tmp_path / "a.har"
    refused.write_bytes(har(b'{"error":{"code":"x"}}', status=400, kind="application/json"))
    (found,) = read_traces(refused)
    assert (term(found).kind, term(found).status) == ("error", 400)
    cut = tmp_path / "a.sse"
    cut.write_bytes(ROLE + text("Hi"))
    (found,) = read_traces(cut)
    assert (term(found).kind, term(found).attempts) == ("error", 1)


@pytest.mark.parametrize("method", ["OPTIONS", "GET", "DELETE", "options"])
def test_what_was_not_posted_is_no_completion(tmp_path: Path, method: str) -> None:
    """A browser asks first whether it may post there, and stored completions are listed there: neither has an answer of a model."""
    captures = (("a.har", har(STREAM), "log", "entries"), ("b.json", cassette(STREAM.decode()), None, "interactions"))  # fmt: skip
    for name, data, outer, entries in captures:
        value = json.loads(data)
        listed = (value[outer] if outer else value)[entries]
        posted = listed.pop()
        other = {**posted, "request": {**posted["request"], "method": method}}
        good = {**posted, "request": {**posted["request"], "method": "Post"}}
        path = tmp_path / name
        listed.append(other)
        path.write_text(json.dumps(value))
        with pytest.raises(TraceInvalid, match="holds no chat completion"):
            list(read_traces(path))
        listed.append(good)
        path.write_text(json.dumps(value))
        assert [each.header.trace_id for each in read_traces(path)] == [f"{path.stem}-3"]


@pytest.mark.parametrize(("status", "model", "said"), [(0, "mine", "not answered: its status is 0"), (200, "a b", "can't be")])  # fmt: skip
def test_an_entry_that_is_none_does_not_hide_the_others(
    tmp_path: Path, status: int, model: str, said: str
) -> None:
    """A browser keeps what it broke off with a status of 0; the entry behind it is read, and the first one told then."""
    value = json.loads(har(STREAM))
    (_, good) = value["log"]["entries"]
    asked = {**good["request"], "postData": {"text": json.dumps({**ASKED, "model": model})}}
    bad = {"request": asked, "response": {**good["response"], "status": status}}
    value["log"]["entries"] = [bad, good]
    path = tmp_path / "a.har"
    path.write_text(json.dumps(value))
    found = read_traces(path)
    assert next(found).header.trace_id == "a-2"
    with pytest.raises(TraceInvalid, match=said):
        next(found)


NONE = {
    "a.har": b"{",
    "b.har": b"[]",
    "c.har": b"7",
    "d.json": b'{"log":{"entries":[{}]}}',
    "e.json": b"{}",
    "f.json": cassette({"base64_string": "***"}),
    "g.har": har(STREAM, url="https://a.example/v1/responses"),
    "h.sse": b'data: {"type":"response.created"}\n\n',
}


@pytest.mark.parametrize("name", NONE)
def test_what_is_no_chat_capture_is_refused(tmp_path: Path, name: str) -> None:
    """With a sentence, not with a traceback."""
    path = tmp_path / name
    path.write_bytes(NONE[name])
    with pytest.raises(TraceInvalid):
        list(read_traces(path))
