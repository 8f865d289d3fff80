"""The rebuilder's close waits for whoever is inside; a rebuilder that does not wait is found."""

from __future__ import annotations

import pytest
import trio

from actors.rebuilder import Rebuilder
from ops.chaos import rebuilds
from ops.chaos.cases import Case, parse_case
from ops.chaos.rebuilds import CROWDS, explore, run_crowd


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("name", CROWDS)
def test_a_crowd_struck_anywhere_leaves_nothing_behind(name: str) -> None:
    """Closed, nothing inside, nothing reserved, no body: at each closer's return, and at the end."""
    tally = explore(name, "s1")
    assert [(str(each.case), each.findings) for each in tally.failures] == []
    assert tally.points > 40
    assert tally.inert == 0


def test_closers_return_while_users_are_still_there() -> None:
    """Otherwise nothing would be seen of what a close waits for."""
    run, findings = run_crowd(Case("rebuilds-sliced"), record=True)
    assert findings == []
    sites = [site for point in run.injector.points for site in point.sites]
    closing = [each for each in sites if each.startswith("actors/rebuilder.py")]
    assert len(set(closing)) >= 4


class Hasty(Rebuilder):
    """Closes at once."""

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
        self._leases.close()
        self.patches.close()
        self._closed = True


class Stubborn(Rebuilder):
    """Never comes to the end of its close."""

    async def aclose(self) -> None:
        self._closed = True
        # Bounded by nothing: the fault.
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()


@pytest.mark.parametrize(
    ("kind", "number"),
    [(Hasty, "I3"), (Stubborn, "I0")],
)
def test_a_close_that_does_not_wait_or_waits_for_ever_is_found(
    kind: type[Rebuilder], number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the invariant that is there for it."""
    monkeypatch.setattr(rebuilds, "Rebuilder", kind)
    _, findings = run_crowd(parse_case("rebuilds-sliced"))
    assert number in {finding.split()[0] for finding in findings}
