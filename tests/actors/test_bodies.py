"""The rebuilders of an exchange as one: each form of a request where it is wanted, and all of them closed."""

from __future__ import annotations

import pytest
import trio

from actors.bodies import Bodies, open_bodies
from gate.endpoints import RESPONSES
from gate.errors import RebuilderClosed, StoreClosed
from gate.ingress import CHAT_PATH, IngressSnapshot, read_chat_request, read_request
from gate.plan import Exact, RecoveryPlan, SchemaRepair
from gate.refs import PlanId
from tests.doubles import ScriptedProvider, exchange_of, gateway, request
from tests.translating import responses_request


def plan(exchange_plan: str, directive: Exact | SchemaRepair) -> RecoveryPlan:
    """One for the first target."""
    return RecoveryPlan(PlanId(exchange_plan), directive, (0,), 0.0)


async def test_each_form_is_made_where_it_is_wanted(autojump_clock: trio.abc.Clock) -> None:
    """An exact plan in both, a repair in one; refs are counted over all of them."""
    exchange = exchange_of(gateway(ScriptedProvider()))
    data = responses_request()
    exchange.endpoint = RESPONSES.path
    exchange.chat, exchange.snapshot = exchange.snapshot, IngressSnapshot(exchange.budget)
    exchange.snapshot.fill(data, read_request(data, RESPONSES.rules, depth_max=64))
    refs, chat = exchange.refs, exchange.chat
    async with open_bodies(exchange) as bodies:
        exact = plan(refs.plan(), Exact(refs.snapshot))
        made = await bodies.rebuild(refs.snapshot, exact, [RESPONSES.path, CHAT_PATH])
        assert len(set(made.values())) == bodies.leases_open == 2
        for endpoint, snapshot in ((RESPONSES.path, exchange.snapshot), (CHAT_PATH, chat)):
            with bodies.take(made[endpoint]) as lease:
                assert b"".join(map(bytes, lease.segments)) == snapshot.body
        assert bodies.leases_open == 0
        repair = SchemaRepair("format", "x")
        bodies.patches(CHAT_PATH).put(repair, b'["again"]')
        again = await bodies.rebuild(refs.snapshot, plan(refs.plan(), repair), [CHAT_PATH])
        with bodies.take(again[CHAT_PATH]) as lease:
            assert b'"messages":["again"]' in b"".join(map(bytes, lease.segments)).replace(b" ", b"")  # fmt: skip
        assert RESPONSES.path in repr(bodies)
    with pytest.raises(RebuilderClosed):
        await bodies.rebuild(refs.snapshot, exact, [CHAT_PATH])


async def test_what_was_not_taken_goes_with_the_block(autojump_clock: trio.abc.Clock) -> None:
    """Nobody takes it afterwards."""
    exchange = exchange_of(gateway(ScriptedProvider()), data=request())
    async with open_bodies(exchange) as bodies:
        exact = plan("ex-1.1", Exact(exchange.refs.snapshot))
        [ref] = (await bodies.rebuild(exchange.refs.snapshot, exact, [CHAT_PATH])).values()
    assert isinstance(bodies, Bodies)
    with pytest.raises(StoreClosed):
        bodies.take(ref)
    await bodies.aclose()
    assert read_chat_request(bytes(exchange.snapshot.body), depth_max=64).model == "small"
