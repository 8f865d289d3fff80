"""The report of a replay as one HTML file that needs nothing else: totals, and a drawing of each trace with what it did before and after.

Everything that comes from a trace is escaped; the page runs no script and loads nothing.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ops.replay_result import Class, Figures, Result
from ops.replay_show import ROWS, Totals, totals
from ops.replay_timeline import Lane, Mark, Timeline

__all__ = ["TIMELINES_MAX", "page"]

TIMELINES_MAX: Final = 200  # drawn; of more traces those with a difference come first
WIDTH: Final = 920
LEFT: Final = 120  # of the time axis, for the names of the lanes
LANE: Final = 26
AREA: Final = 64
ROW: Final = 15  # a mark with its text
MARKS_NAMED_MAX: Final = 8
CODE_WIDTH: Final = 170  # how an attempt ended, beside its lane or on it
_ORDER: Final = {kind: rank for rank, kind in enumerate((Class.UNREADABLE, Class.DIFFERENT, Class.STOPPED, Class.UNSERVED, Class.PASSED, Class.BYTES, Class.DIVERGED, Class.LATER, Class.EARLIER, Class.TIMING, Class.SAME, Class.COUNTED))}  # fmt: skip
_COLOURS: Final = {
    "violation": "#c62828",
    "plan": "#6a1b9a",
    "give_up": "#c62828",
    "seam": "#00838f",
    "remark": "#00838f",
    "caller": "#ef6c00",
    "ping": "#9e9e9e",
}

_STYLE: Final = """
body{font:14px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:76rem;padding:0 1rem;color:#1b1f24;background:#fff}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse;margin:.5rem 0}
td,th{padding:.2rem .8rem;text-align:left;border-bottom:1px solid #e3e6ea}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
details{border:1px solid #d8dce1;border-radius:6px;margin:.5rem 0;padding:.4rem .8rem}summary{cursor:pointer}
.k{display:inline-block;padding:0 .5rem;border-radius:4px;background:#eceff3;margin-left:.5rem}
.s{color:#5a6470;margin-left:.8rem}.top{display:flex;flex-wrap:wrap;gap:0 3rem;align-items:flex-start}
.bad{background:#fde4e4;color:#8e1b1b}.warn{background:#fff2d6;color:#6d4600}
ul{margin:.3rem 0 .3rem 1.2rem;padding:0}code{font:12px ui-monospace,monospace}.side{margin:.6rem 0 .1rem;font-weight:600}
svg{display:block;max-width:100%;height:auto}svg text{font:11px system-ui,sans-serif;fill:#444;paint-order:stroke;stroke:#fff;stroke-width:3px;stroke-opacity:.7}
.key span{display:inline-block;margin-right:1.2rem}.key i{display:inline-block;width:.8rem;height:.8rem;margin-right:.35rem;vertical-align:-1px;border-radius:2px}
"""


def page(results: Sequence[Result], *, mode: str, seconds: float) -> str:
    """The whole document."""
    sums = totals(results)
    drawn = sorted(results, key=_interest)[:TIMELINES_MAX]
    more = len(results) - len(drawn)
    parts = [
        f"<h1>tidegate replay: {_e(mode)}</h1>",
        f"<p>{sums.traces} traces in {seconds:.1f} s.</p>",
        '<div class="top">',
        _counts("class", sums.classes),
        _counts("ended with", sums.ends),
        _counts("verdict", sums.verdicts),
        _sides(sums, mode),
        "</div>",
        _KEY,
        *(_trace(each, opened=index < 3) for index, each in enumerate(drawn)),
        f"<p>{more} more traces are not drawn.</p>" if more > 0 else "",
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>tidegate replay</title><style>{_STYLE}</style></head><body>"
        + "\n".join(parts)
        + "</body></html>\n"
    )


_KEY: Final = (
    '<h2>Traces</h2><p class="key"><span><i style="background:#90caf9"></i>attempt, with its reads</span>'
    '<span><i style="background:#ef9a9a"></i>one that failed</span><span><i style="background:#ffe0b2"></i>evidence held</span><span><i style="background:#a5d6a7"></i>released so far</span><span><i style="background:#2e7d32"></i>a release</span>'
    '<span><i style="background:#c62828"></i>verdict</span><span><i style="background:#6a1b9a"></i>plan</span>'
    '<span><i style="background:#ef6c00"></i>caller</span></p>'
    "<p>Each lane is an attempt, with how it ended. Below stands what was released, in bytes, and on top of it what was read and held; it falls where it was thrown away with its attempt. "
    "Hover over a lane or a mark for its details.</p>"
)


def _interest(result: Result) -> tuple[int, int, int]:
    """Differences first, then what needed more than one attempt or was condemned."""
    before = result.before
    return _ORDER[result.kind], -len(before.verdicts), -before.attempts


def _counts(what: str, counts: Mapping[str, int]) -> str:
    """A table of how many traces there are of each; nothing where there are none."""
    rows = "".join(
        f'<tr><td>{_e(name)}</td><td class="n">{count}</td></tr>' for name, count in counts.items()
    )
    head = f'<tr><th>{what}</th><th class="n">traces</th></tr>'
    return f"<table>{head}{rows}</table>" if rows else ""


def _sides(sums: Totals, mode: str) -> str:
    after = sums.after if mode != "verify" else None
    head = '<th class="n">before</th><th class="n">after</th>' if after else '<th class="n">recorded</th>'  # fmt: skip
    body = ""
    for label, name, form in ROWS:
        cells = [format(getattr(sums.before, name), form)]
        if after is not None:
            cells.append(format(getattr(after, name), form))
        numbers = "".join(f'<td class="n">{cell}</td>' for cell in cells)
        body += f"<tr><td>{label}</td>{numbers}</tr>"
    return f"<table><tr><th></th>{head}</tr>{body}</table>"


def _trace(result: Result, *, opened: bool) -> str:
    bad = result.kind in {Class.UNREADABLE, Class.DIFFERENT, Class.STOPPED}
    warn = result.kind in {Class.UNSERVED, Class.DIVERGED, Class.BYTES, Class.PASSED}
    mark = "bad" if bad else "warn" if warn else ""
    lines = "".join(f"<li><code>{_e(line)}</code></li>" for line in result.lines)
    sides = ("recorded", "replayed") if len(result.timelines) == 2 else ("recorded",)
    one = result.kind is Class.SAME
    shown = list(zip(sides, result.timelines, strict=False))[: 1 if one else 2]
    scale = 1.04 * max((each.seconds for _, each in shown), default=0.0)  # the end has room
    figures = (result.before, result.after or result.before)
    drawings = "".join(
        f'<p class="side">{_e(name)}: {_e(drawn.terminal)}</p><p>{_words(of)}</p>{_svg(drawn, scale)}'
        for (name, drawn), of in zip(shown, figures, strict=False)
    )
    return (
        f"<details{' open' if opened else ''}><summary><code>{_e(result.source)}</code> {_e(result.trace_id)}"
        f'<span class="k {mark}">{_e(result.kind.value)}</span><span class="s">{_e(_short(result.before))}</span></summary>'
        f"<ul>{lines}</ul>{drawings}</details>"
    )


def _short(of: Figures) -> str:
    """How it went, in a few words."""
    ended = f"{of.kind} {of.code}".strip() or "no end"
    attempts = f"{of.attempts} attempt{'' if of.attempts == 1 else 's'}"
    verdicts = ", ".join(dict.fromkeys(of.verdicts))
    said = [f"{ended} ({of.status})", attempts, verdicts, f"{of.ended:.3g} s"]
    return " \u00b7 ".join(filter(None, said))


def _words(of: Figures) -> str:
    first = f"{of.first_byte:.3f} s" if of.first_byte >= 0 else "none"
    return (
        f"{of.attempts} attempt{'' if of.attempts == 1 else 's'}, {of.size} bytes, first byte {first}, "
        f"mean byte {of.mean_byte:.3f} s, held for {of.held:.3f} s at most, {of.wasted_tokens} tokens wasted"
    )


# ---- the drawing --------------------------------------------------------------------------------


def _svg(drawn: Timeline, scale: float) -> str:
    named = [mark for mark in drawn.marks if mark.kind != "ping"][:MARKS_NAMED_MAX]
    top = 8 + len(named) * ROW
    area = top + len(drawn.lanes) * LANE + 8
    floor = area + AREA
    parts = [
        *(_lane(lane, index, top, scale) for index, lane in enumerate(drawn.lanes)),
        *_areas(drawn, area, scale),
        *_releases(drawn, floor, scale),
        *(_mark(mark, None, floor, scale) for mark in drawn.marks if mark not in named),
        *(_mark(mark, index, floor, scale) for index, mark in enumerate(named)),
        *_axis(floor, scale),
    ]
    height = floor + 24
    return f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img">{"".join(parts)}</svg>'


def _x(at: float, scale: float) -> float:
    return LEFT + (at / scale if scale else 0.0) * (WIDTH - LEFT - 16)


def _lane(lane: Lane, index: int, top: int, scale: float) -> str:
    y = top + index * LANE
    x, end = _x(lane.began, scale), _x(lane.ended, scale)
    good = lane.code == "complete"
    colour = "#90caf9" if good else "#ef9a9a"
    title = f"attempt {lane.n} at {lane.provider}: {lane.code or 'open'}, status {lane.status}"
    ticks = "".join(
        f'<line x1="{_x(at, scale):.1f}" x2="{_x(at, scale):.1f}" y1="{y + 3}" y2="{y + 15}" stroke="#0d47a1" stroke-opacity=".55"/>'
        for at, _ in lane.reads
    )
    label = f"{lane.n} {lane.provider}"
    room = WIDTH - end > CODE_WIDTH
    beside = end + 6 if room else min(x + 4, WIDTH - CODE_WIDTH)
    ticks = ticks if room or end - x > CODE_WIDTH else ""
    return (
        f'<text x="4" y="{y + 13}">{_e(label[:18])}</text><g><title>{_e(title)}</title>'
        f'<rect x="{x:.1f}" y="{y}" width="{max(2.0, end - x):.1f}" height="18" rx="3" fill="{colour}"/>{ticks}</g>'
        f'<text x="{beside:.1f}" y="{y + 13}">{_e(lane.code)}</text>'
    )


def _areas(drawn: Timeline, top: int, scale: float) -> Iterator[str]:
    highest = max([size for _, size in (*drawn.arrived, *drawn.released)], default=0)
    yield f'<text x="4" y="{top + 12}">bytes</text><text x="4" y="{top + 26}">{highest}</text>'
    for points, colour in ((drawn.arrived, "#ffe0b2"), (drawn.released, "#a5d6a7")):
        if points:
            yield f'<path d="{_steps(points, top, highest, scale, drawn.seconds)}" fill="{colour}" fill-opacity=".8"/>'


def _steps(
    points: Sequence[tuple[float, int]], top: int, highest: int, scale: float, seconds: float
) -> str:
    """A staircase, closed along the axis."""
    floor = top + AREA
    path = [f"M{_x(points[0][0], scale):.1f} {floor}"]
    for at, size in points:
        path.append(f"H{_x(at, scale):.1f}V{floor - AREA * size / max(1, highest):.1f}")
    path.append(f"H{_x(seconds, scale):.1f}V{floor}Z")
    return "".join(path)


def _releases(drawn: Timeline, floor: int, scale: float) -> Iterator[str]:
    for at, _ in drawn.released:
        x = _x(at, scale)
        yield f'<path d="M{x:.1f} {floor - 7}l4 7h-8z" fill="#2e7d32"/>'


def _mark(mark: Mark, row: int | None, floor: int, scale: float) -> str:
    """A line at its moment; with its text in a row of its own, on the side that has room."""
    x, colour = _x(mark.at, scale), _COLOURS[mark.kind]
    y = 4 if row is None else 10 + row * ROW
    right = x > WIDTH / 2
    text = (
        ""
        if row is None
        else (
            f'<text x="{x - 8 if right else x + 8:.1f}" y="{y + 4}" text-anchor="{"end" if right else "start"}">{_e(mark.text)}</text>'
        )
    )
    return (
        f'<g><title>{_e(mark.text)} at {mark.at:.3f} s</title><line x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{floor}" '
        f'stroke="{colour}" stroke-dasharray="3 2"/><circle cx="{x:.1f}" cy="{y}" r="4" fill="{colour}"/>{text}</g>'
    )


def _axis(y: int, scale: float) -> Iterator[str]:
    yield f'<line x1="{LEFT}" x2="{WIDTH - 16}" y1="{y}" y2="{y}" stroke="#888"/>'
    for part in range(5):
        at, anchor = scale * part / 4, "end" if part == 4 else "middle"
        yield f'<text x="{_x(at, scale):.1f}" y="{y + 14}" text-anchor="{anchor}">{at:.3g} s</text>'


def _e(text: str) -> str:
    return html.escape(text, quote=True)
