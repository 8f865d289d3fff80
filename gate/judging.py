"""Judging one exchange's evidence: mend, let every filter judge, and say which frames may go. Pure; the evaluator carries it out.

What is released has passed every gating filter and the route's hold policy (`gate.hold`). A condemned attempt is dead: what still comes of it is dropped, and so are its
frames, but for those before the resume point where another attempt may go on from there. That one's frames wait until the seam is judged. Times are passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from gate.config import HoldConfig
from gate.continuable import Continuable
from gate.endpoints import CHAT, Endpoint, Mender
from gate.events import Complete, Facts, Frame, Identity, Resume
from gate.evidence import EvidenceTail
from gate.failure import Failure, FailureKind
from gate.filters.awaited import Awaited
from gate.filters.contract import Filter, Passed, Primed, Verdict, Violated, combine
from gate.filters.policed import Policed
from gate.hold import Hold
from gate.menders import Menders, settled
from gate.mending_format import FormatMender
from gate.recovery_table import continues
from gate.repair import RepairNote
from gate.seam import Seam, SeamKind
from gate.transcript import Transcript, text_bytes
from gate.usage import Share, completion_tokens, joined_usage, kept_shares

__all__ = ["Judge", "Judged", "Remark"]

STEP_FRAMES_MAX: Final = (
    256  # judged in one step, at up to 10 us each; an ordinary read has no more
)

Judged: TypeAlias = tuple[list[Frame], Failure | None]


class Remark(NamedTuple):
    """What a filter has found that holds nothing back, or why it failed: its name, and a stable token. `error`: what it raised, a bug of its own."""

    filter: str
    code: str
    error: Exception | None = None


class Judge:
    """The judgement over all attempts of one exchange, one attempt at a time.

    `streams`: whether the caller's framing lets frames go before the terminal; `choices`: how many it asked for; `ceiling`: the completion tokens that it allows. `make_filters` gives fresh filters for an attempt.
    `format_mender`: the step for an answer that is held whole because its request asks for a format.
    `continuable`: what the request says where an answer may be continued, None where it may not; `seam_chars` are held until a seam is judged. `opaque`: nothing here reads the answer.
    """

    def __init__(
        self,
        hold: HoldConfig,
        *,
        streams: bool,
        held_bytes_max: int,
        choices: int = 1,
        reasoning_field: str = "reasoning_content",
        ceiling: int | None = None,
        think_tags: bool = False,
        format_mender: FormatMender | None = None,
        continuable: Continuable | None = None,
        seam_chars: int = 64,
        opaque: bool = False,
        endpoint: Endpoint = CHAT,
        make_filters: Callable[[], Sequence[Filter]],
    ) -> None:
        self.tail = EvidenceTail(endpoint.kept_bytes if streams else None)
        self.facts: Facts | None = None
        self.resume: Resume | None = None  # after a failure: where another attempt may go on
        self.seam_kind: SeamKind | None = None  # of this attempt, once it is known
        self.notes: tuple[RepairNote, ...] = ()  # what a repair would have to say of this attempt
        # What filters that hold nothing back have found; whoever tells of it clears it.
        self.remarks: list[Remark] = []
        self.judged_by = ""  # the name of the filter that condemned this attempt
        self._hold = hold
        self._streams = streams
        self._let_go = False  # the cap was reached under over_cap = "release"
        self._held_bytes_max = held_bytes_max
        self._menders = Menders(
            choices, reasoning_field, ceiling, think_tags, format_mender, opaque, endpoint
        )
        self._format_mender = format_mender
        self._seam_chars = seam_chars
        self._make_filters = make_filters
        self._kept_text = Transcript(continuable.stops) if continuable is not None else None
        self._shares: list[Share] = []
        self._identity: Identity | None = None
        self._mender: Mender
        self._begin()

    @property
    def identity(self) -> Identity | None:
        """The provider's id for the first attempt of the answer, as far as it is known."""
        return self._identity or self._mender.identity

    @property
    def ledger_bytes(self) -> int:
        """Everything that is kept."""
        transcript = 0 if self._transcript is None else self._transcript.ledger_bytes
        seam = 0 if self._seam is None else self._seam.ledger_bytes
        resume = 0 if self.resume is None else text_bytes(self.resume.text)
        beside = transcript + seam + resume + sum([each.ledger_bytes for each in self.awaited])
        return self.tail.ledger_bytes + self._mender.ledger_bytes + beside

    @property
    def reported_tokens(self) -> int:
        """The completion tokens that this attempt has reported; 0: it has said nothing."""
        return completion_tokens(self._mender.usage)

    @property
    def waiting(self) -> bool:
        """Frames have arrived that are not in the tail yet: mending or the seam holds them."""
        return bool(self._mender.held_bytes) or self._seam is not None

    def _begin(self, *, going_on: bool = False, tunnel: bool = False, over_chat: bool = False) -> None:  # fmt: skip
        released = self.tail.released
        before = self.resume.text if going_on and self.resume is not None else ""
        last = self._mender if going_on else None
        self._mender = self._menders.make(last=last, before=before, tunnel=tunnel, over_chat=over_chat)  # fmt: skip
        # Nobody goes on with an answer whose bytes are the provider's own.
        self._transcript = None if tunnel else self._kept_text
        self.tail.relays = tunnel
        self._renew_filters()
        self._passed = released
        opened = going_on and released > 0
        self._policy = Hold(self._hold, streams=self._streams, released=released, opened=opened)
        self._seam: Seam | None = None
        self._kept: list[Frame] = []  # of former attempts, not judged with this one's yet
        self._failed = False
        self._goes_on = going_on
        self.seam_kind = None
        self.notes = ()
        self.judged_by = ""
        if self._let_go:
            self._policy.let_go()

    def _renew_filters(self) -> None:
        """In an order of their own, so that the list's makes no difference where two say the same."""
        self._filters = sorted(self._make_filters(), key=lambda each: each.name)
        self.awaited = [each for each in self._filters if isinstance(each, Awaited)]
        self.said: Sequence[tuple[Filter, Verdict]] = ()

    def begin(self, *, tunnel: bool = False, over_chat: bool = False) -> None:
        """An attempt that begins the answer: what is left of the former one is forgotten. `tunnel`: its bytes are relayed; `over_chat`: its provider only has chat."""
        self.drop()
        self._shares.clear()
        self._identity = None
        self._begin(tunnel=tunnel, over_chat=over_chat)

    def go_on(self, *, over_chat: bool = False) -> None:
        """An attempt that goes on from the resume point. What is held before it stays, and waits with the new frames until the seam is judged."""
        assert self.resume is not None, "something is kept to go on from"
        self._begin(going_on=True, over_chat=over_chat)
        for each in self._filters:
            if isinstance(each, Primed):
                each.prime(self._transcript.text if self._transcript is not None else "")
        self._kept = self.tail.between(self.tail.released, self.tail.newest)
        self._seam = Seam(self.resume.text, seam_chars=self._seam_chars)

    def drop(self) -> None:
        """Nothing that is held is ever released."""
        self.tail.drop()
        self._mender.drop()
        self.facts = None
        self.resume = None

    def forget(self) -> bool:
        """There is no room for what a continuation needs: from now on there is none. Whether that gave something back."""
        if self._kept_text is None:
            return False
        self._kept_text = self._transcript = None
        if self._failed:
            self.drop()
        return True

    def take(self, frames: list[Frame], now: float) -> Judged:
        """Frames that arrived -> the frames to release now, and the failure that condemns the attempt after that, if one does."""
        steps = list(self.steps(frames, now))
        return [frame for released, _ in steps for frame in released], steps[-1][1]

    def steps(self, frames: list[Frame], now: float) -> Iterator[Judged]:
        """The same in one step or more, because what mending held goes on at once, of however many frames. Nothing follows a failure."""
        mended = self._mender.mend(frames)
        if self._seam is not None:
            mended = self._seamed(self._seam.feed(mended))
        for at in range(0, max(len(mended), 1), STEP_FRAMES_MAX):
            released, failure = self._step(mended[at : at + STEP_FRAMES_MAX], now)
            yield released, failure
            if failure is not None:
                return

    def _step(self, mended: list[Frame], now: float) -> Judged:
        failure = self._judge(mended, now)
        if failure is not None:
            return [], failure
        released = self.tick(now)
        if self._over and self._hold.over_cap == "release" and self._streams:
            self._let_go = True
            self._policy.let_go()
            released += self.tick(now)
        return released, Failure(FailureKind.HELD_LIMIT) if self._over else None

    def tick(self, now: float) -> list[Frame]:
        """The frames to release by now, by what has been judged."""
        if self._waits:
            return []
        limit = self._policy.limit(self.tail, self._passed, now)
        if limit == self.tail.newest > self.tail.released and self._holds_newest():
            limit = self._policy.limit(self.tail, limit - 1, now)
        return self._release(limit)

    def wake(self) -> float | None:
        """When `tick` may release something although nothing arrived; None: never."""
        return None if self._waits or not len(self.tail) else self._policy.wake()

    def finish(self, end: Complete) -> Judged:
        """The attempt is complete -> everything that is held, or nothing and the failure that its whole shows."""
        frames, facts = self._mender.finish(end)
        if self._seam is not None:
            frames = self._seamed([*self._seam.feed(frames), *self._seam.finish()])
        if self._shares:
            usage = joined_usage(self._shares, facts.usage)
            facts = msgspec.structs.replace(facts, usage=usage)
        if self._format_mender is not None:
            frames, facts = self._settled(self._format_mender, frames, facts)
        self.facts = facts
        failure = self._judge(frames, None) or self._judged(
            [(each, each.finish(self.tail.newest, facts)) for each in self._filters]
        )
        if failure is not None or self.pending:
            return [], failure
        self._gather_notices(self._filters)
        return self._release(self.tail.newest), None

    @property
    def pending(self) -> bool:
        """A filter that awaits has not said all that it has to before a complete attempt may end: once it has, `settle` ends it."""
        return any(each.gating and each.closing and not each.settled for each in self.awaited)

    def answered(self) -> Failure | None:
        """Filters that await have answered since: the failure that this condemns the attempt with, if it does."""
        if self._waits:
            return None
        self._gather_notices(self.awaited)
        newest = Passed(self.tail.newest)  # what one that only observes has found was told already
        return self._judged(
            [
                (
                    each,
                    each.verdict()
                    if isinstance(each, Awaited)
                    else told
                    if each.gating
                    else newest,
                )
                for each, told in self.said
            ]
        )

    def settle(self) -> Judged:
        """`finish`, where filters that await had still to answer."""
        failure = self.answered()
        if failure is not None:
            return [], failure
        self._gather_notices(self._filters)
        return self._release(self.tail.newest), None

    def _gather_notices(self, filters: Sequence[Filter]) -> None:
        """What filters have to say beside their verdicts; each is told once."""
        for each in filters:
            if each.notice:
                error = each.error if isinstance(each, Policed) else None
                self.remarks.append(Remark(each.name, each.notice, error))
                each.notice = None

    def fail(self, failure: Failure) -> None:
        """The attempt failed or was condemned: its frames go, but for those that another attempt may go on from."""
        if self._failed:
            return  # and so did the one before it, that left what is here
        self._failed = True
        self.facts = None
        # An answer that came in the moment in which the attempt failed for another reason is no news.
        kinds = Policed | Awaited if failure.kind is FailureKind.FILTER_UNAVAILABLE else Policed
        self._gather_notices([each for each in self._filters if isinstance(each, kinds)])
        called = self._mender.holding
        self._mender.drop()
        if self._seam is not None and self._transcript is not None:
            return  # nothing of it has joined what is kept
        # A call that has begun can't be taken up again anywhere.
        resume = None if called else self._resume_point(failure)
        if resume is None:
            self.drop()
            return
        own = Share(self._mender.usage, resume.produced)
        self._shares = kept_shares([*self._shares, own], resume.produced)
        self._identity = self.identity
        self.tail.truncate(resume.cursor.position)
        spent = sum(share.completion_tokens for share in self._shares)
        self.resume = msgspec.structs.replace(resume, produced=spent)

    def _resume_point(self, failure: Failure) -> Resume | None:
        released = self.tail.released
        # Where the request was ours, so is a refusal in its answer: another target may still go on.
        may = self._goes_on or continues(failure.kind, released=bool(released))
        if self._transcript is None or not may:
            return None
        held = self.tail.between(released, self.tail.newest)
        return self._transcript.resume(held, self._passed - released, released=released)

    def _settled(
        self, mender: FormatMender, frames: list[Frame], facts: Facts
    ) -> tuple[list[Frame], Facts]:
        """The last step over all that is held. Where it changed a frame, the attempt is judged anew, from its beginning."""
        released = self.tail.released
        held = self.tail.between(released, self.tail.newest)
        whole = settled(self._mender, mender, [*held, *frames], facts)
        self.remarks += [Remark("structured_output", code) for code in whole.remarks]
        if not whole.changed:
            return frames, whole.facts
        self.tail.truncate(released)
        self._passed = released
        self._renew_filters()
        return whole.frames, whole.facts

    def _seamed(self, frames: list[Frame]) -> list[Frame]:
        """What the seam lets through; it has done its work once it is judged."""
        if self._seam is not None and self._seam.kind is not None:
            self.seam_kind = self._seam.kind
            if self.seam_kind is not SeamKind.RESTARTED:
                self._seam = None
        return frames

    def _judge(self, frames: list[Frame], now: float | None) -> Failure | None:
        """Frames that follow, behind those that are kept of former attempts. `now`: when they came, None at the end."""
        if self.seam_kind is SeamKind.RESTARTED:
            return Failure(FailureKind.RESTARTED)
        if self._seam is not None:
            return None
        kept, self._kept = self._kept, []
        batch = [*kept, *frames] if kept else frames
        if not batch:
            return None
        position = self.tail.newest - len(kept)
        self.tail.extend(frames)
        failure = self._judged([(each, each.observe(batch, position)) for each in self._filters])
        if failure is None and now is not None:
            self._policy.arrived(batch, now)
        return failure

    def _judged(self, verdicts: Sequence[tuple[Filter, Verdict]]) -> Failure | None:
        """What the gating filters say together; one that only observes holds and condemns nothing."""
        self.said = verdicts
        gating = [verdict for each, verdict in verdicts if each.gating]
        verdict = combine(gating, newest=self.tail.newest)
        if len(gating) < len(verdicts):
            seen = verdict.seen if isinstance(verdict, Violated) else self.tail.newest
            self.remarks += [
                Remark(each.name, said.code)
                for each, said in verdicts
                if isinstance(said, Violated) and not each.gating and said.seen <= seen
            ]
        if isinstance(verdict, Passed):
            self._passed = verdict.position
            return None
        # Nobody passes anything of this attempt any more: what was good of it is what another may go on from.
        good = min(each.position for each in gating)
        self._passed = min(max(good, self.tail.released), self.tail.newest)
        self.notes = verdict.notes
        self.judged_by = next(each.name for each, said in verdicts if said is verdict)
        return verdict.failure

    @property
    def _waits(self) -> bool:
        """Nothing is released: an attempt has failed, or the seam behind it is not judged yet."""
        return self._failed or self._seam is not None

    @property
    def _over(self) -> bool:
        """More is held than may be."""
        seam = 0 if self._seam is None else self._seam.held_bytes
        return self.tail.held_bytes + self._mender.held_bytes + seam > self._held_bytes_max

    def _holds_newest(self) -> bool:
        """Whether the newest frame stays, because nobody could go on behind it."""
        if self._transcript is None:
            return False
        return self._transcript.holds_back(self.tail.between(self.tail.released, self.tail.newest))

    def _release(self, position: int) -> list[Frame]:
        frames = self.tail.release(position)
        if self._transcript is not None:
            self._transcript.add(frames)
        return frames
