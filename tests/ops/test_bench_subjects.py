"""Who is measured: each starts, forwards every byte both ways, and ends."""

from __future__ import annotations

import socket
import threading
import tomllib
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from gate.config import ClocksConfig, RouteConfig
from gate.config_check import decode_config
from ops.bench_ends import Ends
from ops.bench_subjects import (
    ASYNCIO,
    CONFIG,
    DIRECT,
    GATE,
    PLAIN,
    TAPED,
    TRIO,
    running_subjects,
)

MANY = 3_000_000  # bytes: more than sockets buffer


@pytest.fixture
def ends() -> Iterator[Ends]:
    """The provider's listener."""
    made = Ends()
    yield made
    made.close()


@pytest.mark.e2e
@pytest.mark.slow
def test_each_forwards_a_stream_and_the_gateway_is_one_process(ends: Ends) -> None:
    """Each stream is whole through each; the two routes share a process."""
    names = (DIRECT, ASYNCIO, TRIO, GATE, PLAIN)
    with running_subjects(ends.port, names, streams_max=2) as subjects:
        assert [each.name for each in subjects] == list(names)
        assert [each.verbatim for each in subjects] == [True, True, True, False, False]
        assert len({each.port for each in subjects}) == 4
        assert subjects[3].process is subjects[4].process
        assert subjects[0].cpu_seconds() is None
        for each in subjects:
            streams = ends.open(each.port, each.model, each.names(2))
            assert streams.lockstep(3) == 6
            assert streams.burst(50) == 100
            streams.finish()
            assert streams.problems(verbatim=each.verbatim) == []


@pytest.mark.e2e
@pytest.mark.slow
def test_the_gateway_that_records_is_a_process_of_its_own(ends: Ends) -> None:
    """It has begun a folder of traces."""
    with running_subjects(ends.port, [GATE, TAPED], streams_max=1) as (plain, taped):
        assert plain.process is not taped.process
        streams = ends.open(taped.port, taped.model, taped.names(1))
        assert streams.lockstep(3) == 3
        streams.finish()
        assert streams.problems(verbatim=taped.verbatim) == []
        process = taped.process
        assert process is not None
        assert (process._log.parent / "traces" / "key").exists()


@pytest.mark.e2e
@pytest.mark.parametrize("name", [ASYNCIO, TRIO])
def test_a_copier_copies_both_ways_under_pressure_and_ends_with_either_end(
    ends: Ends, name: str
) -> None:
    """An echo of more than fits into the buffers; whoever hangs up hangs up on the other."""
    sent = bytes(range(256)) * (MANY // 256)
    with running_subjects(ends.port, [name], streams_max=1) as (subject,):
        caller = socket.create_connection(("127.0.0.1", subject.port), timeout=20)
        caller.sendall(sent[:100])
        provider, _ = ends._listener.accept()
        provider.settimeout(20)

        def echo() -> None:
            while data := provider.recv(65_536):
                provider.sendall(data)

        echoing = threading.Thread(target=echo)
        writing = threading.Thread(target=caller.sendall, args=(sent[100:],))
        echoing.start()
        writing.start()
        received = bytearray()
        while len(received) < len(sent):
            received += caller.recv(65_536)
        writing.join()
        assert received == sent
        caller.close()
        echoing.join()  # it has seen the end
        provider.close()
        caller = socket.create_connection(("127.0.0.1", subject.port), timeout=20)
        provider, _ = ends._listener.accept()
        provider.close()
        assert caller.recv(1) == b""
        caller.close()


def test_the_configuration_is_the_default_but_for_room_and_patience() -> None:
    """What is measured is what people run."""
    config = decode_config(tomllib.loads(CONFIG.format(port=4711, most=1064)))
    assert config.limits.exchanges_max == config.providers[0].concurrency_max == 1064
    assert {each.alias: each.route for each in config.models} == {
        "bench": "default",
        "bench-plain": "plain",
    }
    patient = RouteConfig(clocks=ClocksConfig(gap_seconds=300.0))
    assert config.routes == {"default": patient, "plain": replace(patient, filters=())}
