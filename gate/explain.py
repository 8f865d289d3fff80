"""What a caller that asks for it is told of its exchange: what was held, why, what was found, and which plans ran. Text made from decisions; it decides nothing.

    : tidegate attempt_ended seconds=0.412 attempt=1 code=stream_cut provider=local directive=exact
    : tidegate held seconds=0.902 why=opening frames=3 bytes=412 for=0.488 then=released

One comment of an event stream for each decision, its word and its fields named as in the log; header fields, where the response has not begun, sum the same up. There are stable tokens, numbers and names of the
configuration in it, and nothing of a request, an answer or a provider's own words. What filters that only observe have found stays with the operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from gate.config import HoldConfig
from gate.judging import Judge
from gate.observe import Observation, Told, What
from gate.plan import DirectiveKind
from gate.sse import KEEP_ALIVE

__all__ = ["EXPLAINED_HEADERS", "LINES_MAX", "Explanation", "Held", "held_by", "is_comment"]

LINES_MAX: Final = 256
"""Of one exchange; a caller that is told more reads no more, and a filter that holds a little at every word would say so at every word."""
ENTRIES_MAX: Final = 8
"""In one header field, the newest: clients take some KiB of header in all."""
_PREFIX: Final = ": tidegate "
_ROUTE: Final = b"x-tidegate-route"
_PLANS: Final = b"x-tidegate-plans"
_HELD: Final = b"x-tidegate-held"
EXPLAINED_HEADERS: Final = frozenset({_ROUTE, _PLANS, _HELD})
_TOLD: Final = frozenset(
    {
        What.ATTEMPT_STARTED,
        What.ATTEMPT_ADMITTED,
        What.ATTEMPT_ENDED,
        What.VIOLATION,
        What.PLAN,
        What.SEAM,
        What.GIVE_UP,
        What.FINISH_UNKNOWN,
        What.FINISH_MISSING,
        What.ORPHANED,
    }
)
_FIELDS: Final = ("attempt", "code", "provider", "directive", "reason", "status", "count", "filter")
_CONTINUATION: Final = DirectiveKind.CONTINUATION.value


def is_comment(data: bytes) -> bool:
    """Whether these bytes, written by themselves, are a comment of ours and no part of the answer."""
    return data == KEEP_ALIVE or data.startswith(_PREFIX.encode())


class Held(NamedTuple):
    """Frames that are held, their raw bytes, and `why`: a token, or `filter:` and the names of those that have not passed the first of them; or `opening`, with those that hold back what it might count."""

    why: str
    frames: int
    size: int


def held_by(judge: Judge, hold: HoldConfig, *, streams: bool) -> Held | None:
    """What is held at this moment, None where nothing is. `streams`: the caller's framing lets frames go before the terminal.

    What holds the oldest frame is told: nothing behind it can leave before it. What mending holds is not counted, because it is no frame yet.
    """
    tail = judge.tail
    if not len(tail):
        return Held("mending", 0, 0) if judge.waiting else None
    return Held(_why(judge, hold, streams=streams), len(tail), tail.held_bytes)


def _why(judge: Judge, hold: HoldConfig, *, streams: bool) -> str:
    released, newest = judge.tail.released, judge.tail.newest
    if not streams:
        return "json"
    if hold.mode == "buffered" and not released:
        return "buffered"
    holding = [
        (verdict.position, each.name)
        for each, verdict in judge.said
        if each.gating and verdict.position < newest
    ]
    first = "+".join(name for position, name in holding if position <= released)
    if first:
        return f"filter:{first}"
    if not released:
        # It counts what has passed, so whoever holds something back may be why it does not come.
        return "+".join(["opening", *(f"filter:{name}" for _, name in holding)])
    return "tail" if hold.mode == "window" else "clean_end"


class _Episode:
    """Something is held, for one reason, since a moment."""

    def __init__(self, why: str, began: float, released: int) -> None:
        self.why = why
        self.began = began
        self.released = released
        self.frames = 0
        self.size = 0

    def see(self, held: Held) -> None:
        self.frames = max(self.frames, held.frames)
        self.size = max(self.size, held.size)

    def fields(self, now: float, then: str) -> dict[str, object]:
        """`then`: what became of it."""
        counts = {"frames": self.frames, "bytes": self.size} if self.frames else {}
        return {"why": self.why, **counts, "for": f"{now - self.began:.3f}", "then": then}


class Explanation:
    """Of one exchange. Times are seconds since its request was whole. `route`: its name; `hold`: its policy."""

    def __init__(self, route: str, hold: HoldConfig) -> None:
        self._fresh: list[str] = []  # lines that nobody has taken
        self._told = 0
        self._attempts: dict[int, dict[str, object]] = {}
        self._directive = DirectiveKind.EXACT.value  # of the plan that is being carried out
        self._seam = False  # an attempt is to go on with the answer, and has not joined it yet
        self._episode: _Episode | None = None
        self._holds: list[dict[str, object]] = []
        self._policy: Mapping[str, object] = {
            "route": route,
            "hold": hold.mode,
            "opening_chars": hold.opening_chars,
            "opening_ms": hold.opening_ms,
            "tail_chars": hold.tail_chars,
            "tail_ms": hold.tail_ms,
        }
        self._line("exchange", 0.0, self._policy)

    def observe(self, seen: Observation) -> None:
        """One decision."""
        if seen.what not in _TOLD:
            return
        fields = {name: value for name in _FIELDS if (value := getattr(seen, name))}
        self._line(seen.what.value, seen.seconds, fields)
        match seen.what:
            case What.ATTEMPT_STARTED:
                self._attempts[seen.attempt] = {
                    "attempt": seen.attempt,
                    "directive": self._directive,
                    "provider": seen.provider,
                }
            case What.ATTEMPT_ENDED if seen.attempt in self._attempts:
                self._attempts[seen.attempt]["code"] = seen.code
            case What.VIOLATION if seen.filter:
                self._attempts[seen.attempt]["filter"] = seen.filter
            case What.PLAN:
                self._directive = seen.code
                self._seam = seen.code == _CONTINUATION
            case What.SEAM:
                self._seam = False
            case _:
                pass

    def hold(self, held: Held | None, *, released: int, now: float) -> None:
        """What is held now, after something has happened; everything before the position `released` has gone to the caller."""
        if held is not None and self._seam:
            held = held._replace(why="seam")
        episode = self._episode
        if episode is not None and (held is None or held.why != episode.why):
            gone = "released" if released > episode.released else "dropped"
            self._close(episode, now, gone if held is None else "held")
            self._episode = episode = None
        if held is not None:
            if episode is None:
                episode = self._episode = _Episode(held.why, now, released)
            episode.see(held)

    def told(self, now: float, *, head: bool = False, waiting: bool = False) -> Told | None:
        """What has not been told yet, None where that is nothing; with the header fields where `head`. `waiting`: what is held at this moment is told as well."""
        if waiting and self._episode is not None:
            self._line("held", now, self._episode.fields(now, "held"))
        if not self._fresh and not head:
            return None
        lines = "".join(f"{_PREFIX}{line}\n\n" for line in self._fresh)
        self._fresh.clear()
        return Told(lines.encode(), self._headers() if head else ())

    def _close(self, episode: _Episode, now: float, then: str) -> None:
        fields = episode.fields(now, then)
        self._line("held", now, fields)
        self._holds = [*self._holds, fields][-ENTRIES_MAX:]

    def _line(self, word: str, seconds: float, fields: Mapping[str, object]) -> None:
        self._told += 1
        if self._told < LINES_MAX:
            self._fresh.append(f"{word} seconds={seconds:.3f} {_joined(fields)}".rstrip())
        elif self._told == LINES_MAX:
            self._fresh.append("more")

    def _headers(self) -> tuple[tuple[bytes, bytes], ...]:
        found: dict[bytes, Sequence[Mapping[str, object]]] = {
            _ROUTE: [self._policy],
            _PLANS: list(self._attempts.values())[-ENTRIES_MAX:],
            _HELD: self._holds,
        }
        return tuple((name, _listed(each)) for name, each in found.items() if each)

    def __repr__(self) -> str:
        return f"Explanation({self._told} lines, {len(self._fresh)} of them not told)"


def _joined(fields: Mapping[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in fields.items())


def _listed(entries: Iterable[Mapping[str, object]]) -> bytes:
    return ", ".join(map(_joined, entries)).encode()
