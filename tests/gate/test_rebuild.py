"""Drafts, leases and the steps between: what is said of a rebuilt request, and whose its bytes are."""

from __future__ import annotations

from typing import Final

import pytest

from gate.budget import MemoryBudget, Reservation
from gate.errors import (
    EndpointUnsupported,
    GateError,
    LeaseDuplicate,
    LeaseReleased,
    LeaseUnavailable,
    PlanNotReady,
    RefMalformed,
    SnapshotClosed,
    SnapshotMismatch,
    StoreClosed,
)
from gate.ingress import IngressSnapshot, read_chat_request
from gate.patches import Appended, PatchStore
from gate.plan import Exact, RecoveryPlan, SchemaRepair
from gate.rebuild import (
    SLICE_BYTES_MAX,
    Lease,
    LeaseStore,
    check_plan,
    describe,
    estimate_prompt_tokens,
    exact_lease,
    plan_patched,
    primary_member,
    slices,
)
from gate.refs import PlanId, RequestRef, SnapshotRef
from gate.splice import Member

BODY: Final = b'{"model":"small", "messages":[1] ,"tools":[{}]}'
ONE: Final = RequestRef("openai.rebuilt.1")
MODEL_AT: Final = Member("model", 1, 9, 16)


def snapshot_in(budget: MemoryBudget) -> IngressSnapshot:
    """A chat request that was read."""
    snapshot = IngressSnapshot(budget)
    snapshot.fill(BODY, read_chat_request(BODY, depth_max=64))
    return snapshot


def lease_in(budget: MemoryBudget) -> Lease:
    """Two parts under a reservation of their own."""
    return Lease((b'{"model":', b'"small"}'), MODEL_AT, budget.reserve(17))


def test_an_exact_lease_is_the_callers_own_body() -> None:
    """Neither copied nor counted again."""
    budget = MemoryBudget("exchange", 1_000)
    snapshot = snapshot_in(budget)
    with exact_lease(snapshot) as lease:
        assert lease.segments[0] is BODY
        assert (len(lease.segments), lease.size, lease.model_at) == (1, len(BODY), MODEL_AT)
        assert budget.open_reservations == 1
    assert budget.used == len(BODY)


def test_a_closed_snapshot_gives_no_exact_lease() -> None:
    """Its bytes are no longer counted by anybody."""
    snapshot = snapshot_in(MemoryBudget("exchange", 1_000))
    snapshot.close()
    with pytest.raises(SnapshotClosed):
        exact_lease(snapshot)


def test_a_lease_holds_its_bytes_until_it_is_released() -> None:
    """Then it refuses its body, and a second release is a bug."""
    budget = MemoryBudget("exchange", 1_000)
    lease = lease_in(budget)
    assert (lease.segments, lease.size) == ((b'{"model":', b'"small"}'), 17)
    lease.release()
    assert (lease.released, lease.size, budget.used, budget.open_reservations) == (True, 17, 0, 0)
    with pytest.raises(LeaseReleased):
        _ = lease.segments
    with pytest.raises(AssertionError, match="released twice"):
        lease.release()


def test_the_body_goes_before_its_reservation() -> None:
    """At no moment is a byte held that nobody counts."""
    refused: list[LeaseReleased] = []

    class Watching(Reservation):
        def release(self) -> None:
            with pytest.raises(LeaseReleased) as caught:
                _ = lease.segments
            refused.append(caught.value)
            super().release()

    budget = MemoryBudget("exchange", 1_000)
    watching = Watching(budget, 0)
    with budget.reserve(17) as first:
        budget.open_reservations += 1
        first.transfer(17, watching)
    lease = Lease((b'{"model":', b'"small"}'), MODEL_AT, watching)
    lease.release()
    assert (len(refused), budget.used) == (1, 0)


def test_a_block_releases_what_was_not_released_in_it() -> None:
    """An attempt gives the body back as soon as the head has come, or at its end."""
    budget = MemoryBudget("exchange", 1_000)
    with lease_in(budget) as early:
        early.release()
    with pytest.raises(ValueError, match="inside"), lease_in(budget):
        raise ValueError("inside")
    assert (budget.used, budget.open_reservations) == (0, 0)


def test_a_lease_is_taken_once() -> None:
    """What was taken belongs to its taker, whatever becomes of the store."""
    budget = MemoryBudget("exchange", 1_000)
    leases = LeaseStore()
    leases.put(ONE, lease_in(budget))
    taken = leases.take(ONE)
    with pytest.raises(LeaseUnavailable):
        leases.take(ONE)
    leases.close()
    assert (taken.size, budget.used) == (17, 17)
    taken.release()
    assert budget.used == 0


def test_a_second_lease_under_a_ref_is_released_on_the_spot() -> None:
    """And the first one stays."""
    budget = MemoryBudget("exchange", 1_000)
    leases = LeaseStore()
    first, second = lease_in(budget), lease_in(budget)
    leases.put(ONE, first)
    with pytest.raises(LeaseDuplicate):
        leases.put(ONE, second)
    assert (second.released, budget.used) == (True, 17)
    assert leases.take(ONE) is first


def test_a_closed_store_releases_what_it_has_and_what_comes() -> None:
    """Nothing is put or taken any more; closing twice is fine."""
    budget = MemoryBudget("exchange", 1_000)
    leases = LeaseStore()
    leases.put(ONE, lease_in(budget))
    leases.close()
    leases.close()
    assert (len(leases), budget.used) == (0, 0)
    late = lease_in(budget)
    with pytest.raises(StoreClosed):
        leases.put(ONE, late)
    assert (late.released, budget.used, budget.open_reservations) == (True, 0, 0)
    with pytest.raises(StoreClosed):
        leases.take(ONE)


def test_a_patched_body_is_planned_from_the_callers_bytes() -> None:
    """The patch's values in their places, its new members last, and what it removes gone."""
    budget = MemoryBudget("exchange", 1_000)
    snapshot, patches = snapshot_in(budget), PatchStore(budget, "messages")
    directive = SchemaRepair("format", "schema_mismatch")
    patches.put(directive, b"[1,2]", siblings={"seed": 7}, remove=["tools"])
    with patches.take(directive) as patch:
        plan = plan_patched(snapshot, patch)
    made = b"".join(plan.segments())
    assert made == b'{"model":"small", "messages":[1,2],"seed":7}'
    assert plan.output_bytes == len(made)


def test_a_patched_body_takes_an_item_more() -> None:
    """Behind the caller's own."""
    budget = MemoryBudget("exchange", 1_000)
    snapshot, patches = snapshot_in(budget), PatchStore(budget, "messages")
    directive = SchemaRepair("format", "schema_mismatch")
    patches.put(directive, Appended(b"2"), siblings={"seed": 7})
    with patches.take(directive) as patch:
        made = b"".join(plan_patched(snapshot, patch).segments())
    assert made == BODY.replace(b"[1]", b"[1,2]").removesuffix(b"}") + b',"seed":7}'


def test_only_views_are_cut_for_copying() -> None:
    """At a quarter of a mebibyte; bytes that are owned already stay whole."""
    assert SLICE_BYTES_MAX == 262_144
    large = bytes(2 * 262_144 + 1)
    assert [len(piece) for piece in slices(memoryview(large))] == [262_144, 262_144, 1]
    assert [piece is large for piece in slices(large)] == [True]


@pytest.mark.parametrize(
    ("endpoint", "member"), [("/v1/chat/completions", "messages"), ("/v1/responses", "input")]
)
def test_each_endpoint_has_its_primary_member(endpoint: str, member: str) -> None:
    """It is what a patch replaces."""
    assert primary_member(endpoint) == member


@pytest.mark.parametrize("endpoint", ["", "/v1/completions", "/v1/chat/completions/"])
def test_no_other_endpoint_is_rebuilt(endpoint: str) -> None:
    """Nobody knows where its conversation stands."""
    with pytest.raises(EndpointUnsupported):
        primary_member(endpoint)


@pytest.mark.parametrize(
    ("ref", "request_ref", "targets", "kind"),
    [
        ("No Token", "", (), RefMalformed),
        ("other.snapshot", "", (0,), PlanNotReady),
        ("other.snapshot", "ex.snapshot", (), PlanNotReady),
        ("other.snapshot", "ex.snapshot", (0,), SnapshotMismatch),
    ],
)
def test_the_first_thing_that_is_wrong_with_a_plan_is_what_is_said(
    ref: str, request_ref: str, targets: tuple[int, ...], kind: type[GateError]
) -> None:
    """Ref, readiness, snapshot: in this order."""
    plan = RecoveryPlan(PlanId("ex.1"), Exact(SnapshotRef(request_ref)), targets)
    with pytest.raises(kind):
        check_plan(SnapshotRef(ref), plan, current=SnapshotRef("ex.snapshot"))


def test_a_plan_for_this_very_snapshot_is_carried_out() -> None:
    """Nothing is said against it."""
    snapshot = SnapshotRef("ex.snapshot")
    check_plan(snapshot, RecoveryPlan(PlanId("ex.1"), Exact(snapshot), (0,)), current=snapshot)


def test_a_draft_says_sizes_and_names() -> None:
    """The peak is the ledger's, and at least the body; the needs are those of request and plan."""
    budget = MemoryBudget("exchange", 1_000)
    plan = RecoveryPlan(PlanId("ex.4"), Exact(), (0,), needs=frozenset({"prefill"}))
    with budget.reserve(300):
        pass
    drafts = [
        describe(
            plan,
            ONE,
            endpoint="/v1/responses",
            size=size,
            needs=frozenset({"tools"}),
            budget=budget,
        )
        for size in (101, 400)
    ]
    first = drafts[0]
    assert (first.plan_id, first.idempotency_key, first.request_ref) == ("ex.4", "ex.4", ONE)
    assert (first.endpoint, first.family) == ("/v1/responses", "openai.json")
    assert (first.retained_bytes, first.peak_bytes, first.max_bytes) == (101, 300, 1_000)
    assert (first.prompt_tokens, first.needs) == (26, frozenset({"tools", "prefill"}))
    assert drafts[1].peak_bytes == 400


def test_tokens_are_estimated_at_four_bytes_each() -> None:
    """Rounded up."""
    assert [estimate_prompt_tokens(size) for size in (0, 1, 4, 5)] == [0, 1, 1, 2]


def test_what_is_logged_of_a_lease_shows_no_byte_of_it() -> None:
    """Sizes and states."""
    leases = LeaseStore()
    lease = lease_in(MemoryBudget("exchange", 1_000))
    leases.put(ONE, lease)
    assert (repr(leases), repr(lease)) == ("LeaseStore(1 leases, open)", "Lease(17 bytes, open)")
    leases.close()
    assert (repr(leases), repr(lease)) == (
        "LeaseStore(0 leases, closed)",
        "Lease(17 bytes, released)",
    )
