"""The recorder: what is sampled is on disk, what finds no room is counted, and no exchange fails for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import trio

from actors.context import Gateway
from gate.config import GatewayConfig
from gate.config_check import decode_config
from gate.errors import BudgetExceeded
from gate.observe import OutcomeKind
from gate.trace import Header, Read, Term, Trace
from gate.trace_codec import encode_binary
from ops.replay import differences, replay
from ops.trace import files_of, read_traces
from tests.doubles import (
    Answer,
    RecordingCaller,
    ScriptedProvider,
    cut,
    door,
    healthy,
    refuses,
    world,
)
from tests.doubles import Read as Piece
from tests.tracing import gateway_of, tables
from transport import recorder as module
from transport.recorder import Recorder, open_recorder
from transport.segments import Segments

Said = list[tuple[str, str, dict[str, Any]]]


class Disk:
    """A recorder over a folder, the gateway it records, and what it said."""

    def __init__(self, folder: Path, **observe: Any) -> None:
        told = {
            "record_dir": str(folder),
            "record_content": "full",
            "sample_success": 1.0,
            **observe,
        }
        route = {"recovery": {"backoff_seconds": 0.0}, "hold": {"mode": "buffered"}}
        self.folder = folder
        self.config: GatewayConfig = decode_config(tables(1, route=route, observe=told))
        self.said: Said = []

    @contextmanager
    def opened(self) -> Iterator[Recorder]:
        with open_recorder(self.config, self.say) as found:
            assert found is not None
            yield found

    def say(self, level: str, event: str, **values: Any) -> None:
        self.said.append((level, event, values))

    def gateway(self, *script: Any) -> Gateway:
        return gateway_of(self.config, [ScriptedProvider(*script)])

    def traces(self) -> list[Trace]:
        return [trace for path in files_of([self.folder]) for trace in read_traces(path)]


def differences_of(trace: Trace) -> list[str]:
    """A replay has a loop of its own, so it needs a thread here."""
    return differences(trace, replay(trace))


async def play(found: Recorder, gate: Gateway, *, name: str = "ex-1") -> OutcomeKind:
    outcome = await found.run(door(name), RecordingCaller(), gate)
    return outcome.kind


async def test_a_recorded_exchange_is_a_trace_on_disk_that_replays(tmp_path: Path) -> None:
    """With its configuration, its versions and its salt, which differs from trace to trace."""
    disk = Disk(tmp_path / "traces")
    with disk.opened() as found:
        assert await play(found, disk.gateway(healthy("Hi")), name="a") is OutcomeKind.SUCCESS
        assert await play(found, disk.gateway(cut("H"), healthy("Hi")), name="b") is OutcomeKind.SUCCESS  # fmt: skip
    one, two = disk.traces()
    assert (one.header.trace_id, two.header.trace_id) == ("a", "b")
    assert one.header.salt != two.header.salt
    assert {"tidegate", "python", "trio", "msgspec"} == set(one.header.build)
    for trace in (one, two):
        assert await trio.to_thread.run_sync(differences_of, trace) == []
    assert disk.said == [("info", "recorded", {"written": 2, "passed_over": 0, "dropped": 0, "failed": 0, "size": found.counts.size})]  # fmt: skip


@pytest.mark.parametrize("content", ["hash", "redact"])
async def test_less_than_full_content_shows_no_word_and_has_no_key(tmp_path: Path, content: str) -> None:  # fmt: skip
    """The key stays in the folder, for nobody else to read; two runs share it."""
    disk = Disk(tmp_path, record_content=content)
    for _ in range(2):
        with disk.opened() as found:
            await play(found, disk.gateway(healthy("swordfish")))
    one, two = disk.traces()
    data = b"".join(path.read_bytes() for path in files_of([tmp_path]))
    assert b"swordfish" not in data
    assert (tmp_path / "key").read_bytes() not in data
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert not one.replayable
    assert (one.header.salt, one.header.key_id) == (b"", two.header.key_id)
    reads = [
        [each.size for each in trace.records if isinstance(each, Read)] for trace in (one, two)
    ]
    assert reads[0] == reads[1] != []
    digests = [
        [each.sha for each in trace.records if isinstance(each, Term)] for trace in (one, two)
    ]
    assert digests[0] == digests[1]


async def test_sampling_goes_by_the_outcome(tmp_path: Path) -> None:
    """An answer that needed a second attempt is no plain success."""
    disk = Disk(tmp_path, sample_success=0.5, sample_failure=1.0)
    with disk.opened() as found:
        found.draw = lambda: 0.7
        await play(found, disk.gateway(healthy("Hi")), name="plain")
        await play(found, disk.gateway(cut("H"), healthy("Hi")), name="recovered")
        await play(found, disk.gateway(refuses(400)), name="refused")
        found.draw = lambda: 0.4
        await play(found, disk.gateway(healthy("Hi")), name="drawn")
        assert found.counts.passed_over == 1
    assert [each.header.trace_id for each in disk.traces()] == ["recovered", "refused", "drawn"]


async def test_a_disk_that_fails_costs_traces_and_nothing_else(tmp_path: Path) -> None:
    """It is said once, until it works again."""
    disk = Disk(tmp_path, record_bytes_max=64)
    with disk.opened() as found:
        for _ in range(3):
            assert await play(found, disk.gateway(healthy("Hi"))) is OutcomeKind.SUCCESS
    assert (found.counts.failed, found.counts.size, found.failing) == (3, 0, True)
    assert [event for level, event, _ in disk.said if level == "warning"] == ["traces are not recorded"]  # fmt: skip


async def test_a_trace_that_can_not_be_encoded_costs_only_itself(tmp_path: Path) -> None:
    """A bug in the thread is counted; the thread lives on."""
    disk = Disk(tmp_path)
    with disk.opened() as found:
        gate = disk.gateway(healthy("Hi"))
        gate.world = world(draw=cast(float, 1j))
        await play(found, gate, name="lost")
        await play(found, disk.gateway(healthy("Hi")), name="kept")
    assert [each.header.trace_id for each in disk.traces()] == ["kept"]
    assert found.counts.failed == 1
    assert ("warning", "traces are not recorded", {"reason": "TypeError"}) in disk.said


async def test_what_waits_for_the_disk_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the queue traces are dropped; beyond the memory content and records are, and all of it comes back."""
    disk = Disk(tmp_path)
    monkeypatch.setattr(module, "TAPES_BYTES_MAX", 3_000)
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.01)
    idle = Recorder(disk.config, b"k", Segments(tmp_path, 8_000), disk.say)  # without its thread
    idle._jobs.maxsize = 1
    await play(idle, disk.gateway(healthy("Hi")), name="waits")
    assert 0 < idle._taken <= 3_000
    await play(idle, disk.gateway(healthy("Hi")), name="dropped")
    idle.close()
    assert idle.counts.dropped == 2
    idle._jobs.maxsize = 2
    idle.close()
    idle.work()
    assert idle._taken == idle._given
    (trace,) = disk.traces()
    assert trace.end.truncated
    assert trace.end.dropped > 0
    assert isinstance(trace.records[-1], Term)


async def test_the_trace_of_a_relayed_request_has_the_pool_that_served_it(tmp_path: Path) -> None:
    """Whose alias stands in no JSON: in a field of a form, or in a header of the caller's."""
    form = b'--b\r\ncontent-disposition: form-data; name="model"\r\n\r\nsmall\r\n--b--\r\n'
    disk = Disk(tmp_path / "traces")
    asked: list[tuple[bytes, dict[str, Any]]] = [
        (form, {"content_type": b"multipart/form-data; boundary=b", "endpoint": "/v1/audio/translations"}),
        (b"", {"endpoint": "/v1/files", "method": "GET", "model": "small", "query": "after=file-secret"}),
    ]  # fmt: skip
    with disk.opened() as found:
        for body, through in asked:
            caller = RecordingCaller(body)
            answer = Answer([Piece(b"{}")], headers=((b"content-type", b"application/json"),))
            outcome = await found.run(door("ex-1", **through), caller, disk.gateway(answer))
            assert (outcome.kind, outcome.attempts) == (OutcomeKind.SUCCESS, 1)
    traces = disk.traces()
    assert len(traces) == 2
    for trace in traces:
        assert [each["alias"] for each in trace.header.config["models"]] == ["small"]
        assert await trio.to_thread.run_sync(differences_of, trace) == []
        assert b"secret" not in b"".join(map(encode_binary, trace.records))


async def test_an_exchange_without_room_leaves_nothing_on_the_books(tmp_path: Path) -> None:
    """The refusal is the door's, as ever."""
    disk = Disk(tmp_path)
    gate = disk.gateway(healthy("Hi"))
    gate.budget.reserve(gate.budget.bytes_max)
    with disk.opened() as found:
        with pytest.raises(BudgetExceeded):
            await play(found, gate)
        assert found._taken == 0
        assert found.counts.dropped == 1
    assert disk.traces() == []


def test_nothing_is_recorded_where_nothing_was_asked_for() -> None:
    """No folder, no thread."""
    with open_recorder(GatewayConfig(), print) as found:
        assert found is None


def test_a_folder_that_can_not_be_used_is_told_and_nothing_is_recorded(tmp_path: Path) -> None:
    """A file in its place, or a key that is none."""
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "key").write_bytes(b"short")
    for name in ("file", "bad"):
        disk = Disk(tmp_path / name)
        with open_recorder(disk.config, disk.say) as found:
            assert found is None
        assert [(level, event) for level, event, _ in disk.said] == [("warning", "traces are not recorded")]  # fmt: skip


def test_a_key_that_another_worker_made_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """Both had found none."""
    theirs = b"t" * module.KEY_BYTES
    (tmp_path / "key").write_bytes(theirs)
    monkeypatch.setattr(Path, "exists", lambda self: False)
    assert module._key(tmp_path) == theirs
    assert [each.name for each in tmp_path.iterdir()] == ["key"]


def test_the_header_is_the_first_thing_that_a_reader_needs() -> None:
    """An old reader can tell a new format from damage."""
    assert msgspec.structs.fields(Header)[0].name == "version"
