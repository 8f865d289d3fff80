"""Scenarios of filters that await, by every policy, of those that other packages bring, of worker threads, and of the recorder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from gate.config import FilterConfig, HoldConfig, PluginConfig, RecoveryConfig, Table
from gate.events import Frame, TextDelta
from gate.filters.contract import Passed, Verdict
from gate.filters.plugin import FilterPlugin
from ops.chaos.scenario import Asking, Scenario, Service, route
from ops.chaos.wire import ROLE, refuses, request, spoken, stream, text
from ops.provider_script import Ending

__all__ = ["Banned", "BannedInThread", "scenarios"]

HELLO: Final = spoken("He", "llo", every_ms=100)
LONG: Final = "x" * 30_000  # one frame of it is more than a piece of a release
URL: Final = "http://127.0.0.1:1/"
OBSERVES: Final = FilterConfig(kind="webhook", url=URL, horizon_chars=1, gating=False)
OPEN: Final = FilterConfig(kind="webhook", url=URL, horizon_chars=1, failure="open")
GATHERS: Final = FilterConfig(
    kind="webhook", url=URL, horizon_chars=4, batch_ms=120, deadline_ms=60_000
)


class Banned(FilterPlugin):
    """Objects to a frame with the word in it."""

    def observe(self, frames: Sequence[Frame], position: int) -> Verdict:
        for at, frame in enumerate(frames, position):
            if any(isinstance(each, TextDelta) and "bad" in each.text for each in frame.events):
                return self.violated(at, "banned")
        return Passed(position + len(frames))


class BannedInThread(Banned):
    """The same, in a worker thread."""

    heavy: ClassVar[bool] = True


def _table(kind: str, **keys: object) -> Mapping[str, FilterConfig]:
    return {"manners": PluginConfig(kind=kind, options=Table(), action="next_provider", **keys)}  # type: ignore[arg-type]


def scenarios() -> dict[str, Scenario]:
    """By name."""
    return {**_awaiting(), **_plugins(), **_recorded()}


def _awaiting() -> Mapping[str, Scenario]:
    return {
        "judged-in-time": Scenario(
            about="a filter answers while a long write is under way, and then nothing comes",
            # The first question is the role's. The last character stays held, as the horizon is one.
            targets=[
                [
                    stream(
                        ROLE,
                        20,
                        text(LONG),
                        20,
                        text("y"),
                        50,
                        text("z"),
                        20,
                        text("."),
                        Ending.STALL,
                    )
                ]
            ],
            said=LONG + "yz.",
            gets=LONG + "yz",
            code="gap_timeout",
            asking=Asking(seconds=0.5),
            services={"hook": Service(0.07)},
        ),
        "judged-open": Scenario(
            about="a filter that never answers in time, and may be done without",
            targets=[[HELLO]],
            said="Hello",
            services={"hook": Service(9.0, table=OPEN)},
        ),
        "judged-observing": Scenario(
            about="a filter that only observes answers behind the end",
            targets=[[HELLO]],
            said="Hello",
            services={"watch": Service(0.3, table=OBSERVES)},
            lingers=0.5,
        ),
        "judged-gathering": Scenario(
            about="a filter that is asked for more at a time, over a continuation",
            targets=[
                [spoken("One", " two", " three", every_ms=30, end=[Ending.CUT])],
                [spoken("One", " two", " three", " four", every_ms=30)],
            ],
            said="One two three four",
            services={"hook": Service(0.1, table=GATHERS)},
            route=route(hold=HoldConfig(mode="window", tail_chars=6)),
            prefill="vllm",
        ),
        "judged-json": Scenario(
            about="an answer that is not streamed is judged, and the first one denied",
            targets=[[spoken("bad")], [HELLO]],
            said="Hello",
            asking=Asking((request(stream=False),)),
            services={"hook": Service(0.1, denied="bad")},
            hidden=("bad",),
        ),
    }


def _plugins() -> Mapping[str, Scenario]:
    return {
        "plugged": Scenario(
            about="a filter that another package brings objects to the first answer",
            targets=[[spoken("He", " bad", every_ms=50)], [HELLO]],
            said="Hello",
            filters=("empty", "manners"),
            plugins={"banned": Banned},
            tables=_table("banned"),
            hidden=("bad",),
            route=route(hold=HoldConfig(mode="window", tail_chars=8)),
        ),
        "threads": Scenario(
            about="the same in a worker thread",
            targets=[[spoken("He", " bad", every_ms=50)], [HELLO]],
            said="Hello",
            filters=("empty", "manners"),
            plugins={"banned": BannedInThread},
            tables=_table("banned"),
            thread_seconds=0.08,
            hidden=("bad",),
            route=route(hold=HoldConfig(mode="window", tail_chars=8)),
        ),
        "threads-late": Scenario(
            about="threads that take longer than they may; the answer goes without",
            targets=[[spoken("He", " llo", every_ms=50)]],
            said="He llo",
            filters=("empty", "manners"),
            plugins={"banned": BannedInThread},
            tables=_table("banned", failure="open", deadline_ms=100),
            thread_seconds=0.4,
        ),
    }


def _recorded() -> Mapping[str, Scenario]:
    return {
        "explained": Scenario(
            about="a caller that is told what is decided: a denied answer, a refusal, a good one",
            targets=[[spoken("xx", "He", every_ms=50)], [refuses(503), HELLO]],
            said="Hello",
            explained=True,
            services={"hook": Service(0.05, denied="xx")},
            hidden=("xx",),
            route=route(recovery=RecoveryConfig(attempts_max=4)),
        ),
        "recorded": Scenario(
            about="an exchange on a tape: nobody listens, a reset, an answer",
            targets=[[None], [stream(Ending.RESET), HELLO]],
            said="Hello",
            recorded=True,
            route=route(recovery=RecoveryConfig(attempts_max=4)),
        ),
        "recorded-judged": Scenario(
            about="on a tape, with a filter that awaits and a caller that is slow",
            targets=[[spoken("He", "xx", every_ms=100)], [HELLO]],
            said="Hello",
            recorded=True,
            asking=Asking(seconds=0.2),
            services={"hook": Service(0.25, denied="xx")},
            hidden=("xx",),
        ),
    }
