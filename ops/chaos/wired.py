"""What holds of the bytes that a caller got over HTTP, in the rings in which a whole connection is there: each finding begins with the number of its invariant.

The rule that only a connection can show: a response that HTTP calls complete *is* complete, with its one terminal; everything else is cut off, so that no client takes it for an answer.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterable, Iterator
from typing import Final

from ops.chaos.inject import Bug
from ops.chaos.reading import Read
from ops.chaos.responses import Response
from ops.chaos.scenario import Scenario

__all__ = ["answer_findings", "leaves", "said", "short", "words"]

OK: Final = 200
BAD_REQUEST: Final = 400


def answer_findings(
    scenario: Scenario, response: Response, *, cut_off: bool, passed: Iterable[Iterable[str]] = ()
) -> Iterator[str]:
    """`cut_off`: it may stop anywhere. `passed`: for each filter that awaits, the texts that it let through, by attempt."""
    if response.broken:
        yield f"I7 no HTTP: {response.broken}"
    if response.rest:
        yield f"I6 behind the response: {response.rest[:60]!r}"
    if not response.whole and not cut_off and (response.streamed or not scenario.tunnels):
        yield "I10 no end, and the caller is there"
    if not _readable(response, cut_off=cut_off):
        return
    try:
        read = response.read(scenario.endpoint)
    except (ValueError, KeyError, TypeError, IndexError, json.JSONDecodeError) as error:
        yield f"I7 unreadable: {error!r}"
        return
    if scenario.tunnels and response.streamed:
        # Nothing is added to a provider's bytes: where it sends no `[DONE]`, its finish is the end.
        read.done = read.done or bool(response.whole and read.finishes and not read.error)
    yield from _framing(response, read, cut_off=cut_off)
    yield from words(scenario, read, cut_off=cut_off)
    for name, texts in enumerate(passed):
        if not any(text.startswith(read.text) for text in [*texts, ""]):
            yield f"I9 {short(read.text)} was not passed by filter {name}"


def _readable(response: Response, *, cut_off: bool) -> bool:
    """There is anything to read. A part of an object is nothing; nor is the server's own word to one who has left in the middle of its request."""
    if cut_off and not response.body and response.status == BAD_REQUEST:
        return False
    return bool(response.status) and (response.streamed or response.whole)


def _framing(response: Response, read: Read, *, cut_off: bool) -> Iterator[str]:
    if response.streamed:
        if response.status != OK:
            yield f"I18 an event stream under status {response.status}"
        if read.torn and (response.whole or not cut_off):
            yield "I7 half an event"
        yield from (f"{'I6' if 'behind' in each else 'I7'} {each}" for each in read.wrong)
    elif (response.status == OK) == bool(read.error):
        yield f"I18 status {response.status} with {'an error' if read.error else 'an answer'}"
    if response.whole and read.terminals != 1:
        yield f"I10 a clean end with {read.terminals} terminals"


def words(scenario: Scenario, read: Read, *, cut_off: bool) -> Iterator[str]:
    """What holds of an answer's text and calls in every ring. `cut_off`: it may stop anywhere, also between two frames of a call."""
    if not scenario.said.startswith(read.text):
        yield f"I8 {short(read.text)} is no beginning of {short(scenario.said)}"
    yield from _calls(scenario, read, cut_off=cut_off and not read.terminals)
    if read.done and (read.text != scenario.said or len(read.calls) != len(scenario.calls)):
        yield f"I8 a clean end behind {short(read.text)}"
    if read.done and read.finishes != scenario.finishes and not scenario.relays:
        yield f"I7 {read.finishes} finish reasons"
    for hidden in scenario.hidden:
        if hidden in read.text:
            yield f"I9 {hidden!r} was seen"


def _calls(scenario: Scenario, read: Read, *, cut_off: bool) -> Iterator[str]:
    """Each is one of the scenario's, in their order, and whole where the answer has an end."""
    wanted = [*scenario.calls, *[("", "")] * len(read.calls)]
    for (_, call), (name, arguments) in zip(sorted(read.calls.items()), wanted, strict=False):
        begun = cut_off and name.startswith(call[0]) and arguments.startswith(call[1])
        if call != (name, arguments) and not begun:
            yield f"I8 a call that nobody made, or a part of one: {call}"


def short(text: str) -> str:
    """For a line of a report."""
    return repr(text if len(text) <= 60 else f"{text[:30]}...{text[-20:]} ({len(text)})")


def leaves(error: BaseException) -> list[BaseException]:
    """What is inside groups, and what an exception came from."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in leaves(each)]
    context = error.__cause__ or error.__context__
    return [
        error,
        *([each for each in leaves(context) if isinstance(each, Bug)] if context else []),
    ]


def said(error: BaseException | None) -> str:
    """An exception for a line of a report: its kind, its words, its place."""
    if error is None:
        return "nothing was raised"
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename.rsplit('/', 2)[-1]}:{frames[-1].lineno})" if frames else ""
    return "".join(traceback.format_exception_only(error)).strip() + place
