"""A case: a scenario, a schedule, and up to two faults. As one line it is the argument list of the command that repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ops.chaos.sched import FIFO

__all__ = [
    "ANYONE",
    "CALLER",
    "DRAIN",
    "HALF",
    "PORT",
    "PROVIDER",
    "REQUEST",
    "RESET",
    "STOP",
    "Case",
    "CaseInvalid",
    "Fault",
    "parse_case",
    "parse_ring",
    "proven",
]

REQUEST: Final = "req"  # the whole exchange, from outside
CALLER: Final = "caller"  # it leaves
RESET: Final = "reset"  # the caller's connection is reset (from ring 2 on)
HALF: Final = "half"  # the caller closes its sending side (likewise)
PROVIDER: Final = "provider"  # its providers reset what they have open (likewise)
STOP: Final = "stop"  # the service is told to stop (likewise)
DRAIN: Final = "drain"  # it ends
PORT: Final = "port"  # the K-th call of a port fails as the port may
ANYONE: Final = "*"  # whoever stands at the point
FAULTS_MAX: Final = 2
AT_DIGITS: Final = 7  # no run has so many points
CANCEL: Final = "cancel"
RAISE: Final = "raise"


class CaseInvalid(ValueError):
    """A case line that says nothing that can be run."""


@dataclass(frozen=True, slots=True)
class Fault:
    """`kind` is `cancel` or `raise`; `who`: `req`, `caller`, `reset`, `half`, `provider`, `stop`, `drain`, `port`, or the actor that stands there; `at`: the number of the point, or of the port call, from 1;
    in ring 3 the tenths of a millisecond since the caller began.

    A point is the beginning or the end of a task's step; all tasks of all exchanges of the scenario count.
    """

    kind: str
    who: str
    at: int

    def __str__(self) -> str:
        return f"--{self.kind} {shlex.quote(f'{self.who}:{self.at}')}"


@dataclass(frozen=True, slots=True)
class Case:
    """One run. `ring`: how much of the program takes part."""

    scenario: str
    schedule: str = FIFO
    faults: tuple[Fault, ...] = ()
    ring: int = 1

    def __str__(self) -> str:
        ring = "" if self.ring == 1 else f" --ring {self.ring}"
        schedule = "" if self.schedule == FIFO else f" --schedule {self.schedule}"
        faults = "".join(f" {each}" for each in self.faults)
        return f"{self.scenario}{ring}{schedule}{faults}"

    def with_fault(self, fault: Fault) -> Case:
        """The same with one more fault, which counts in the run of those before."""
        return replace(self, faults=(*self.faults, fault))

    def simpler(self) -> list[Case]:
        """What is worth trying in place of a case that fails: fewer faults, then the plain schedule."""
        fewer = [
            replace(self, faults=self.faults[:at] + self.faults[at + 1 :])
            for at in reversed(range(len(self.faults)))
            if len(self.faults) > 1
        ]
        plain = [replace(self, schedule=FIFO)] if self.schedule != FIFO else []
        return [*fewer, *plain]


def parse_fault(kind: str, text: str) -> Fault:
    """`WHO:K`. Raises `CaseInvalid`."""
    who, _, at = text.rpartition(":")
    if not who or not at.isdecimal() or len(at) > AT_DIGITS or int(at) < 1:
        raise CaseInvalid(f"{text!r} is not WHO:K with K from 1, of {AT_DIGITS} digits at most")
    special = {CANCEL: (REQUEST, CALLER, RESET, HALF, PROVIDER, STOP, DRAIN), RAISE: (PORT,)}
    other = special[RAISE if kind == CANCEL else CANCEL]
    if who in other:
        raise CaseInvalid(f"--{kind} has no {who!r}")
    return Fault(kind, who, int(at))


def parse_ring(text: str) -> int:
    """1, 2 or 3. Raises `CaseInvalid`."""
    if text not in {"1", "2", "3"}:
        raise CaseInvalid(f"no ring {text!r}; there are 1, 2 and 3")
    return int(text)


def parse_case(line: str) -> Case:
    """A case from its line; what follows a `#` is a remark. Raises `CaseInvalid`."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:  # a quote that is not closed
        raise CaseInvalid(f"{line!r}: {error}") from None
    if not words:
        raise CaseInvalid("an empty line is no case")
    return make_case(words[0], words[1:])


def make_case(scenario: str, options: Sequence[str]) -> Case:
    """A case from a scenario's name and its options, in pairs. Raises `CaseInvalid`."""
    case = Case(scenario)
    for name, value in zip(options[::2], options[1::2], strict=False):
        if name == "--schedule":
            case = replace(case, schedule=value)
        elif name == "--ring":
            case = replace(case, ring=parse_ring(value))
        elif name in {f"--{CANCEL}", f"--{RAISE}"}:
            case = case.with_fault(parse_fault(name.removeprefix("--"), value))
        else:
            raise CaseInvalid(f"{name!r} is no option of a case")
    if len(options) % 2:
        raise CaseInvalid(f"{options[-1]!r} has no value")
    return proven(case)


def proven(case: Case) -> Case:
    """The case. Raises `CaseInvalid` for more faults than can be struck, and for those that its ring does not have."""
    if len(case.faults) > FAULTS_MAX:
        raise CaseInvalid(f"{FAULTS_MAX} faults at most")
    if len(set(case.faults)) < len(case.faults):
        raise CaseInvalid("the same fault twice")
    struck = {fault.who for fault in case.faults}
    if case.ring == 1 and {RESET, HALF, PROVIDER, STOP} & struck:
        raise CaseInvalid("ring 1 has no connections, and no service")
    return case
