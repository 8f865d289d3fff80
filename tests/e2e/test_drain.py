"""A gateway process under load: two hundred callers in every phase at once, shut down as the timeline says; and two hundred healthy ones side by side."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Final

import httpx
import pytest
import trio

from ops.provider import RunningProvider, running_provider
from ops.provider_answers import answer_steps, behaviour_of
from ops.provider_chat import Chat, read_chat
from ops.provider_connection import Connection, RecordedRequest, Stats
from ops.provider_script import Attempt, Pace, Repeat, Script, Sleep, Step
from tests.assembly import read_object, read_stream
from tests.transport.edge import (
    CHAT,
    Answer,
    Process,
    asking,
    code_of,
    eventually,
    head,
    question,
    read_answer,
    running_process,
)
from tests.transport.servers import loopback

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SERVE: Final = ("ops", "serve", "--bind", "127.0.0.1:0", "--config")
DRAIN_SECONDS: Final = (
    4.0  # a healthy answer takes 1.2 of them, on a machine that has nothing else to do
)
BEFORE_LOCK: Final = 12  # steps of an answer: its head, its role, and some words

# A healthy answer has some forty words.
CALM: Final = Script(pace=Pace(chunk_ms=30))
BRISK: Final = Script(pace=Pace(chunk_ms=20))
_WAVES: Final = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % (
    b"wave " * 8_000
)
FLOOD: Final = Script(attempts=(Attempt((Repeat(_WAVES, 10_000),)),))
PROVIDERS: Final[Mapping[str, Script]] = {"calm": CALM, "brisk": BRISK, "flood": FLOOD}

TABLES: Final = """
[server]
drain_seconds = {drain}
caller_write_seconds = {write}
[limits]
exchanges_max = {places}
queue_seconds_max = 60.0
[routes.default]
filters = ["empty"]
recovery = {{ retry_budget_floor = 1000 }}
[routes.held]
filters = ["empty"]
hold = {{ mode = "buffered" }}
recovery = {{ retry_budget_floor = 1000 }}
"""


@dataclass(frozen=True, slots=True)
class Phase:
    """So many callers, and what their provider does with them: `models`, in order of preference, at `provider`."""

    callers: int
    models: tuple[str, ...]
    provider: str = "calm"
    route: str = "default"
    stream: bool = True


# They are in flight for as long as they are let.
LASTING: Final[Mapping[str, Phase]] = {
    "flowing": Phase(15, ("loop:10000",)),
    "silent": Phase(30, ("stall:3",)),
    "mute": Phase(25, ("no-answer",)),
    "held": Phase(20, ("stall:9",), route="held"),
    "json": Phase(15, ("no-answer",), stream=False),
    "pausing": Phase(10, ("429:30",)),
    "narrow": Phase(12, ("stall:3",), "narrow"),  # two of them have the places there
}
# Their provider stops at a lock until it is opened; then they end by themselves within the time that a drain leaves them.
BRIEF: Final[Mapping[str, Phase]] = {
    "live": Phase(15, ("healthy",), "locked"),
    "buffered": Phase(10, ("healthy",), "locked", route="held"),
    "recovering": Phase(10, ("cut:9", "healthy"), "locked", route="held"),
    "paused": Phase(5, ("503@5",), "locked"),
    "hopeless": Phase(5, ("429:30",), "locked"),
}
NEVER_READING: Final = 5
UPLOADING: Final = 5
QUEUED: Final = 18
FLOODED: Final[Mapping[str, Phase]] = {"flooded": Phase(NEVER_READING, ("any",), "flood")}
PLACES: Final = sum(phase.callers for phase in (*LASTING.values(), *BRIEF.values()))
# Any number of callers, for other tests.
HEALTHY: Final[Mapping[str, Phase]] = {
    "quick": Phase(0, ("healthy",), "brisk"),
    "quick-held": Phase(0, ("healthy",), "brisk", route="held"),
}
PHASES: Final[Mapping[str, Phase]] = {**LASTING, **BRIEF, **FLOODED, **HEALTHY}


def write_phases(folder: Path, urls: Mapping[str, str], **values: float) -> Path:
    """A configuration with every phase's alias."""
    lines = [TABLES.format(**{"drain": DRAIN_SECONDS, "write": 600.0, "places": 500, **values})]
    for name, url in urls.items():
        places = 2 if name == "narrow" else 500
        lines += ["[[providers]]", f'name = "{name}"', f'base_url = "{url}"']
        lines += [f"concurrency_max = {places}", "breaker = { failures = 1000 }"]
    for alias, phase in PHASES.items():
        targets = [
            f'{{ provider = "{phase.provider}", model = "{model}", priority = {priority} }}'
            for priority, model in enumerate(phase.models)
        ]
        lines += ["[[models]]", f'alias = "{alias}"', f'route = "{phase.route}"']
        lines += [f"targets = [{', '.join(targets)}]"]
    path = folder / "drain.toml"
    path.write_text("\n".join(lines))
    return path


def asked(number: int) -> str:
    """A question of one's own."""
    return f"How high is the water at lock {number}?"


def said(number: int) -> str:
    """What the provider says to it."""
    return Chat(model="any", serial=0, prompt=asked(number)).text()


class Lock:
    """A provider whose answers come as far as the lock, and go on when it is open; errors wait before it."""

    def __init__(self) -> None:
        self.open = False
        self.stats = Stats()
        self._earlier: Counter[str] = Counter()

    async def serve(self, stream: trio.SocketStream) -> None:
        """One connection."""
        await Connection(stream, self._steps, self.stats).serve()

    def _steps(self, request: RecordedRequest) -> Iterator[Step]:
        chat = read_chat(request.body, serial=1)
        behaviour = behaviour_of(chat.model).at(self._earlier[chat.model])
        self._earlier[chat.model] += 1
        steps = answer_steps(chat, behaviour, pace=BRISK.pace)
        yield from islice(steps, 0 if behaviour.fault.value.isdigit() else BEFORE_LOCK)
        while not self.open:
            yield Sleep(50)
        yield from steps


@asynccontextmanager
async def locked() -> AsyncIterator[tuple[Lock, str]]:
    """Such a provider on a port of its own, and its base URL."""
    lock = Lock()
    async with loopback(lock.serve) as port:
        yield lock, f"http://127.0.0.1:{port}/v1"


@dataclass
class Told:
    """What one caller got, in seconds of the test's clock."""

    answer: Answer
    at: float
    number: int

    @property
    def text(self) -> str:
        """The answer as a client puts it together; only where it ended well."""
        streamed = self.answer.headers["content-type"].startswith("text/event-stream")
        read = (read_stream if streamed else read_object)(self.answer.body)
        assert (self.answer.status, self.answer.whole, read.clean) == (200, True, True)
        assert read.choices[0].finishes == ["stop"]
        return read.choices[0].text

    @property
    def error(self) -> str:
        """The code of the error that a stream ended with, instead of `[DONE]`."""
        read = read_stream(self.answer.body)
        assert (self.answer.status, self.answer.whole, read.done) == (200, True, False)
        return str(read.error["code"])


@dataclass
class Harbour:
    """A gateway process, its providers, and everybody who has been answered so far."""

    process: Process
    providers: Mapping[str, RunningProvider]
    lock: Lock
    nursery: trio.Nursery
    told: dict[str, list[Told]] = field(default_factory=dict)
    callers: int = 0
    asked: int = 0  # whose request is on its way

    async def call(self, phase: str, alias: str, number: int, *, missing: int = 0) -> None:
        """One caller, to the end of its answer. `missing`: bytes of its body that never come."""
        stream = alias not in PHASES or PHASES[alias].stream
        messages = [{"role": "user", "content": asked(number)}]
        body = question(alias, stream=stream, messages=messages)
        connection = await trio.open_tcp_stream("127.0.0.1", self.process.port)
        async with connection:
            await connection.send_all(head(len(body) + missing) + body)
            self.asked += 1
            answer = await read_answer(connection)
            self.told.setdefault(phase, []).append(Told(answer, trio.current_time(), number))

    def start(self, phase: str, alias: str, callers: int, *, missing: int = 0) -> None:
        """Callers of a phase, each with a number of its own."""
        for _ in range(callers):
            self.callers += 1
            self.nursery.start_soon(_call, self, phase, alias, self.callers, missing)

    async def start_all(self, phases: Mapping[str, Phase]) -> None:
        """Callers of all these phases; returns when the providers have heard of everyone who can reach them."""
        heard = self.heard
        for name, phase in phases.items():
            self.start(name, name, phase.callers)
            heard += 2 if name == "narrow" else phase.callers
        await eventually(lambda: self.heard >= heard, within=5)

    async def settle(self) -> None:
        """Until the gateway has dealt with every request so far: later ones, on connections of their own, are answered."""
        await eventually(lambda: self.asked == self.callers, within=5)
        for _ in range(3):
            async with httpx.AsyncClient(base_url=self.process.url, trust_env=False) as client:
                assert (await client.get("/readyz")).status_code == 200

    @property
    def heard(self) -> int:
        """How many requests have reached the providers."""
        stats = (self.lock.stats, *(each.stats for each in self.providers.values()))
        return sum(len(each.requests) for each in stats)


async def _call(harbour: Harbour, phase: str, alias: str, number: int, missing: int) -> None:
    await harbour.call(phase, alias, number, missing=missing)


@asynccontextmanager
async def harbour_of(folder: Path, **values: float) -> AsyncIterator[Harbour]:
    """Everything running; when left, callers who still wait are sent home."""
    async with AsyncExitStack() as stack:
        providers = {
            name: await stack.enter_async_context(running_provider(script))
            for name, script in PROVIDERS.items()
        }
        lock, locked_url = await stack.enter_async_context(locked())
        urls = {name: provider.base_url for name, provider in providers.items()}
        urls |= {"narrow": urls["calm"], "locked": locked_url}
        path = write_phases(folder, urls, **values)
        process = await stack.enter_async_context(running_process(*SERVE, str(path)))
        nursery = await stack.enter_async_context(trio.open_nursery())
        yield Harbour(process, providers, lock, nursery)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def not_reading(
    harbour: Harbour, *aliases: str, callers: int
) -> AsyncIterator[list[trio.SocketStream]]:
    """So many callers for each of these aliases, who read nothing; of `flooded` it would be more than any buffer holds."""
    heard = harbour.heard + len(aliases) * callers
    async with AsyncExitStack() as stack:
        streams = [
            await stack.enter_async_context(
                asking(harbour.process.port, question(alias), narrow=True)
            )
            for alias in aliases
            for _ in range(callers)
        ]
        await eventually(lambda: harbour.heard == heard, within=5)
        yield streams


async def everything(stream: trio.SocketStream) -> bytes:
    """What is there to read, until the connection ends in whatever way."""
    data = b""
    try:
        while more := await stream.receive_some():
            data += more
    except trio.BrokenResourceError:
        pass
    return data


# --- the timeline --------------------------------------------------------------------------------


@dataclass
class Drained:
    """A drain as it was seen: `told` by phase; everything in seconds after the signal, but what was answered to late callers."""

    told: Mapping[str, Sequence[Told]]
    seconds: Mapping[str, Sequence[float]]
    ready: httpx.Response
    late: Sequence[httpx.Response]
    left_unread: Sequence[bytes]
    exit_code: int
    ended: float
    codes: Counter[str]
    left_open: Sequence[int]


async def drained(harbour: Harbour) -> Drained:
    """Everybody in flight, one SIGTERM, and what came of it."""
    process = harbour.process
    async with (
        httpx.AsyncClient(base_url=process.url, trust_env=False) as client,
        not_reading(harbour, "flooded", callers=NEVER_READING) as stuck,
    ):
        harbour.start("uploading", "quick", UPLOADING, missing=1)
        await harbour.start_all(LASTING)
        await harbour.start_all(BRIEF)
        harbour.start("queued", "quick", QUEUED)
        await harbour.settle()
        process.popen.send_signal(signal.SIGTERM)
        began = trio.current_time()
        await eventually(
            lambda: len(harbour.told.get("queued", ())) == QUEUED, within=DRAIN_SECONDS
        )
        harbour.lock.open = True
        late = [await client.post(CHAT, content=question("quick"))]
        ready = await client.get("/readyz")
        await trio.sleep_until(began + DRAIN_SECONDS + 0.3)
        late.append(await client.post(CHAT, content=question("quick")))
        exit_code = await process.exit_code(within=DRAIN_SECONDS + 10)
        ended = trio.current_time() - began
        unread = [await everything(stream) for stream in stuck]
    log = process.log()
    return Drained(
        told=harbour.told,
        seconds={
            name: sorted(each.at - began for each in told) for name, told in harbour.told.items()
        },
        ready=ready,
        late=late,
        left_unread=unread,
        exit_code=exit_code,
        ended=ended,
        codes=Counter(line["code"] for line in log if line["event"] == "exchange_ended"),
        left_open=[line["count"] for line in log if line["event"].startswith("exit with")],
    )


def assert_whole(seen: Drained) -> None:
    """Who can finish in time finishes, with every word, recoveries included."""
    for name in ("live", "buffered", "recovering", "paused"):
        told = seen.told[name]
        assert len(told) == BRIEF[name].callers
        assert {each.text == said(each.number) for each in told} == {True}
        assert seen.seconds[name][-1] < DRAIN_SECONDS + 0.3
    for name in ("recovering", "paused"):
        attempts = {each.answer.headers["x-tidegate-attempts"] for each in seen.told[name]}
        assert attempts == {"2"}


def assert_told_why(seen: Drained) -> None:
    """Who can't is told when the time is over: an open stream in the stream, everybody else by a status."""
    opened = {"flowing": 15, "silent": 30, "narrow": 2}
    callers = {name: phase.callers for name, phase in LASTING.items()}
    for name, number in (*callers.items(), ("uploading", UPLOADING)):
        assert len(seen.told[name]) == number
        in_stream = [each for each in seen.told[name] if each.answer.status == 200]
        assert len(in_stream) == opened.get(name, 0), name
        for each in seen.told[name]:
            if each.answer.status == 200:
                assert each.error == "shutdown"
            else:
                assert_refused(each.answer, "shutdown")
        assert seen.seconds[name][0] > DRAIN_SECONDS - 0.1, name
        assert seen.seconds[name][-1] < DRAIN_SECONDS + 5, name


def assert_refused(answer: Answer, code: str) -> None:
    """A 503 that says when to come again, on a connection that is of no more use."""
    assert (answer.status, code_of(answer.body), answer.whole) == (503, code, True)
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.headers["connection"] == "close"


async def test_a_drain_under_load_ends_everybody_as_it_should(tmp_path: Path) -> None:
    """Two hundred callers in every phase, and SIGTERM: each is served or told, in time; who does not read is cut; exit 0."""
    assert PLACES + NEVER_READING + UPLOADING + QUEUED == 200
    async with harbour_of(tmp_path, places=PLACES + NEVER_READING) as harbour:
        seen = await drained(harbour)
    for each in seen.told["queued"]:
        assert_refused(each.answer, "draining")
        assert each.answer.headers["x-tidegate-attempts"] == "0"
    assert_whole(seen)
    assert_told_why(seen)
    for each in seen.told["hopeless"]:  # a pause that does not fit is not begun
        assert (each.answer.status, code_of(each.answer.body)) == (429, "rate_limited")
        assert 25 <= int(each.answer.headers["retry-after"]) <= 30
    assert seen.seconds["hopeless"][-1] < DRAIN_SECONDS - 0.1
    for answer in (*seen.late, seen.ready):
        assert (answer.status_code, code_of(answer.content)) == (503, "draining")
        assert int(answer.headers["retry-after"]) >= 1
    assert {answer.headers["connection"] for answer in seen.late} == {"close"}
    for data in seen.left_unread:
        assert data.startswith(b"HTTP/1.1 200 ")
        assert b"[DONE]" not in data
    assert seen.exit_code == 0
    assert seen.ended < DRAIN_SECONDS + 10
    assert seen.left_open == [NEVER_READING]
    assert seen.codes == {
        "success": 40,
        "shutdown": 47 + 80 + UPLOADING,
        "rate_limited": 5,
        "draining": QUEUED,
    }


async def test_a_drain_ends_with_its_last_exchange(tmp_path: Path) -> None:
    """However much of its time is left; connections that could serve another request hold nothing up."""
    async with (
        harbour_of(tmp_path, drain=60.0) as harbour,
        httpx.AsyncClient(base_url=harbour.process.url, trust_env=False) as idle,
    ):
        assert (await idle.get("/readyz")).status_code == 200
        await harbour.start_all({"recovering": BRIEF["recovering"]})
        harbour.process.popen.send_signal(signal.SIGTERM)
        harbour.lock.open = True
        await eventually(lambda: len(harbour.told.get("recovering", ())) == 10, within=5)
        assert await harbour.process.exit_code(within=10) == 0
        assert not [line for line in harbour.process.log() if line["event"].startswith("exit with")]


async def test_a_second_signal_ends_everything_at_once(tmp_path: Path) -> None:
    """Held, open and flowing, or stuck in a write; nobody is told that his answer was whole."""
    async with (
        harbour_of(tmp_path, drain=60.0) as harbour,
        not_reading(harbour, "mute", "held", "flowing", "flooded", callers=5) as streams,
    ):
        process = harbour.process
        process.popen.send_signal(signal.SIGTERM)
        await trio.sleep(0.3)  # two signals at once would be one
        assert process.popen.poll() is None
        process.popen.send_signal(signal.SIGINT)
        assert await process.exit_code(within=10) == 0
        for data in [await everything(stream) for stream in streams]:
            assert not data or data.startswith(b"HTTP/1.1 200 ")
            assert b"[DONE]" not in data
        [line] = [each for each in process.log() if each["event"].startswith("exit with")]
        assert line["count"] == 20


# --- side by side --------------------------------------------------------------------------------


async def crowd(harbour: Harbour, aliases: Sequence[str], callers: int) -> list[float]:
    """So many healthy callers at once, over these aliases in turn; how long each took. Each has got its own text."""
    harbour.told.clear()
    began = trio.current_time()
    for number in range(callers):
        alias = aliases[number % len(aliases)]
        harbour.start(alias, alias, 1)
    await eventually(lambda: sum(map(len, harbour.told.values())) == callers, within=10)
    told = [each for some in harbour.told.values() for each in some]
    assert {each.text == said(each.number) for each in told} == {True}
    return [each.at - began for each in told]


async def test_two_hundred_streams_side_by_side_are_not_mixed_up(tmp_path: Path) -> None:
    """Live and held ones, each with its own words; and a second crowd needs no more memory than the first."""
    async with harbour_of(tmp_path) as harbour:
        empty = harbour.process.rss_bytes()
        await crowd(harbour, ["quick", "quick-held"], 200)
        first = harbour.process.rss_bytes()
        await crowd(harbour, ["quick-held", "quick"], 100)
        assert first - empty < 60_000_000
        assert harbour.process.rss_bytes() - first < 8_000_000


async def test_a_caller_who_never_reads_slows_nobody(tmp_path: Path) -> None:
    """Fifty others take as long as without him; little waits for him, and he is let go, under a name of his own."""
    async with harbour_of(tmp_path, write=1.0) as harbour:
        await crowd(harbour, ["quick"], 50)
        alone = median(await crowd(harbour, ["quick"], 50))
        async with asking(harbour.process.port, question("flooded")):
            beside = median(await crowd(harbour, ["quick"], 50))
            await eventually(lambda: "caller_too_slow" in harbour.process.output(), within=5)
        assert beside < 2 * alone
        [line] = [each for each in harbour.process.log() if each.get("code") == "caller_too_slow"]
        assert line["count"] < 1_000_000
        assert harbour.providers["flood"].open_connections == 0
