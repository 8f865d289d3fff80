"""Planted faults at the edges of the program, where no played port can show them: each has to be found in ring 2 or 3."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutants import Mutant

__all__ = ["EDGES"]

MEMORY: Final = 2
SOCKETS: Final = 3

HTTP1: Final = "transport/http1.py"
POOL: Final = "transport/pool.py"
PROVIDER: Final = "transport/provider.py"
CALLER: Final = "transport/caller.py"
ASGI: Final = "transport/asgi.py"
CONTAINMENT: Final = "transport/containment.py"
QUICK: Final = "transport/quick_send.py"
SERVE: Final = "transport/serve.py"
WEBHOOK: Final = "transport/webhook.py"


def _edge(
    ring: int, name: str, file: str, old: str, new: str, *near: str, masked: str = ""
) -> Mutant:
    return Mutant(name, ((file, old, new),), near, masked, ring)


EDGES: Final = (
    # --- to providers
    _edge(
        MEMORY,
        "connection-in-use-is-put-by",
        HTTP1,
        "        if self._over and self.reusable and not self._connection.closed:\n",
        "        if self.reusable and not self._connection.closed:\n",
        "slow-caller",
    ),
    _edge(
        MEMORY,
        "connection-left-open-where-a-request-is-cancelled",
        HTTP1,
        "        except BaseException:\n            answer.close()\n            raise\n\n\ndef _origin",
        "        except Exception:\n            answer.close()\n            raise\n\n\ndef _origin",
        "healthy",
    ),
    _edge(
        MEMORY,
        "connection-left-open-where-an-attempt-ends",
        PROVIDER,
        "        assert self._answer is not None\n        self._answer.close()\n",
        "        assert self._answer is not None\n",
        "left",
        "denied",
    ),
    _edge(
        MEMORY,
        "read-that-is-cancelled-keeps-its-connection",
        HTTP1,
        "            except BaseException:\n                self.close()\n                raise\n            self._feed(data)\n        body",
        "            except Exception:\n                self.close()\n                raise\n            self._feed(data)\n        body",
        "left",
        masked="leaving the attempt closes it as well",
    ),
    _edge(
        MEMORY,
        "idle-connections-are-kept-at-the-end",
        POOL,
        "        while self._idle:\n            self._idle.pop()[1].close()\n",
        "        self._idle.clear()\n",
        "healthy",
    ),
    _edge(
        MEMORY,
        "dead-idle-connection-is-used",
        POOL,
        "            if not connection.wire.is_stale():\n                return connection\n            connection.close()\n",
        "            return connection\n",
        "healthy",
        masked="a connection that is lost before the first byte is made good for by a free try",
    ),
    _edge(
        MEMORY,
        "dead-idle-connection-costs-the-attempt",
        HTTP1,
        "                    if received or not reused\n",
        "                    if True\n",
        "judged",
        "exact",
    ),
    _edge(
        MEMORY,
        "bytes-behind-an-answer-are-ignored",
        HTTP1,
        "            self.reusable = False\n            if not self._over:\n                self._fault = UpstreamFault.PROTOCOL\n",
        "            if not self._over:\n                self._fault = UpstreamFault.PROTOCOL\n",
        "relayed",
        masked="a connection on which anything has come meanwhile is stale",
    ),
    _edge(
        MEMORY,
        "cut-body-is-a-whole-one",
        HTTP1,
        "self._fault = UpstreamFault.CLOSED if self._until_eof else UpstreamFault.CUT\n",
        "self._over = True\n",
        "relayed-cut",
        "relayed",
    ),
    # --- to callers
    _edge(
        MEMORY,
        "leaving-is-not-heard",
        CALLER,
        "            self._body_over.set()\n            return Disconnected()\n",
        "            self._body_over.set()\n            await trio.sleep_forever()\n",
        "left",
    ),
    _edge(
        MEMORY,
        "broken-answer-ends-cleanly",
        ASGI,
        "            raise Unfinished(outcome.code)\n",
        "            await caller.end()\n            return\n",
        "healthy",
    ),
    _edge(
        MEMORY,
        "cut-relay-ends-cleanly",
        CALLER,
        "        self.aborted = True\n",
        "        self.aborted = self.ended = True\n",
        "relayed-cut",
        masked="the server cuts what its application has not ended, whatever that thinks of it",
    ),
    _edge(
        MEMORY,
        "nobody-answers-where-nobody-left",
        ASGI,
        "outcome.kind is OutcomeKind.ABANDONED and outcome.code",
        "outcome.kind is OutcomeKind.ABANDONED",
        "healthy",
    ),
    _edge(
        MEMORY,
        "start-that-was-cancelled-counts",
        CALLER,
        "            self.started = False  # the server writes all of one, or begins none\n",
        "",
        "healthy",
    ),
    _edge(
        MEMORY,
        "answer-is-ended-in-part",
        CONTAINMENT,
        "            with trio.CancelScope(shield=True):\n                await original(self, event)\n",
        "            await original(self, event)\n",
        "healthy",
        masked="where a write fails its connection is closed",
    ),
    _edge(
        MEMORY,
        "answer-in-part-keeps-its-connection",
        CONTAINMENT,
        "            _socket(sending.__self__).close()\n            raise\n",
        "            raise\n",
        "healthy",
    ),
    _edge(
        MEMORY,
        "idle-clock-runs-on",
        CONTAINMENT,
        "        # First: a restart may wait for its lock.\n        idle, self.idle_task = self.idle_task, _NeverIdle()\n        await idle.stop()\n",
        "",
        "healthy",
    ),
    _edge(
        MEMORY,
        "idle-clock-begins-again",
        CONTAINMENT,
        "        # First: a restart may wait for its lock.\n        idle, self.idle_task = self.idle_task, _NeverIdle()\n        await idle.stop()\n",
        "        await self.idle_task.stop()\n        self.idle_task = _NeverIdle()\n",
        "healthy",
    ),
    _edge(
        MEMORY,
        "one-connection-ends-all",
        CONTAINMENT,
        "            failed(group)\n",
        "            raise\n",
        "healthy",
    ),
    _edge(
        MEMORY,
        "end-waits-for-somebody-else-to-read",
        CALLER,
        "                await self.receive()\n            else",
        "                await self._body_over.wait()\n            else",
        "left-early",
    ),
    # --- on sockets only
    _edge(
        SOCKETS,
        "part-of-a-write-is-written-again",
        QUICK,
        'return b"" if sent == len(data) else data[sent:]',
        'return b"" if sent == len(data) else data',
        "slow-reader",
        "json-slow",
    ),
    _edge(
        SOCKETS,
        "rest-of-a-write-is-dropped",
        QUICK,
        'return b"" if sent == len(data) else data[sent:]',
        'return b""',
        "slow-reader",
        "json-slow",
    ),
    _edge(
        SOCKETS,
        "no-limit-for-a-caller-that-takes-nothing",
        SERVE,
        "            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)\n",
        "            pass\n",
        "never-reads",
    ),
    _edge(
        SOCKETS,
        "socket-to-a-provider-is-not-closed",
        POOL,
        "    return Wire(stream, receive, socket.close, lambda: _is_readable(socket))\n",
        "    return Wire(stream, receive, lambda: None, lambda: _is_readable(socket))\n",
        "healthy",
    ),
    _edge(
        SOCKETS,
        "reset-by-a-provider-is-a-bug",
        POOL,
        "        except OSError as error:\n            raise trio.BrokenResourceError from error\n\n    return Wire(stream",
        "        except BlockingIOError as error:\n            raise trio.BrokenResourceError from error\n\n    return Wire(stream",
        "reset-chunked",
        "provider-resets",
    ),
    # --- under HTTP/2, where callers may share a connection
    _edge(
        SOCKETS,
        "body-behind-a-refusal-ends-its-connection",
        CONTAINMENT,
        "            if isinstance(event, DataReceived) and event.stream_id not in self.streams:\n",
        "            if isinstance(event, DataReceived) and not event.stream_id:\n",
        "too-large-http2",
    ),
    _edge(
        SOCKETS,
        "body-behind-a-refusal-closes-the-window",
        CONTAINMENT,
        "                self.connection.acknowledge_received_data(size, stream)\n",
        "                pass\n",
        "too-large-http2",
        masked="the window of its own stream closes first; what is left of the connection's is enough to go on slowly",
    ),
    _edge(
        SOCKETS,
        "request-that-was-reset-is-remembered",
        CONTAINMENT,
        "                if buffer is not None:\n                    await buffer.close()  # the sending task forgets what is whole\n",
        "",
        "healthy-http2",
        masked="it goes with its connection; a test of transport looks at what is remembered",
    ),
    _edge(
        SOCKETS,
        "connection-is-not-idle-behind-a-reset",
        CONTAINMENT,
        "                if self.idle:\n                    await self.send(Updated(idle=True))\n",
        "",
        "healthy-http2",
    ),
    _edge(
        SOCKETS,
        "answer-waits-for-a-connection-that-has-ended",
        CONTAINMENT,
        "                await buffer.close()  # nobody takes from it any more\n",
        "                pass\n",
        "healthy-http2",
    ),
    _edge(
        SOCKETS,
        "answer-given-up-leaves-its-stream-open",
        CONTAINMENT,
        "            await _reset_unless_whole(self, event.stream_id)\n",
        "            pass\n",
        "cut-http2",
    ),
    _edge(
        SOCKETS,
        "buffer-grows-behind-a-closed-window",
        CONTAINMENT,
        "    if len(self.buffer) < BUFFER_LOW_WATER:\n",
        "    if len(taken) < BUFFER_LOW_WATER:\n",
        "never-reads-http2",
    ),
    _edge(
        SOCKETS,
        "write-that-meets-the-close-is-a-bug",
        CONTAINMENT,
        "        except trio.BusyResourceError:  # the other task is the one that closes\n",
        "        except BlockingIOError:\n",
        "healthy",
    ),
    _edge(
        SOCKETS,
        "refusal-does-not-wait-for-its-body",
        CALLER,
        "        if not self._body_over.is_set():\n            await self.write(data)\n",
        "        if False:\n            await self.write(data)\n",
        "too-large",
        masked="this kernel gives a caller what came before a reset",
    ),
    # --- at the end of the service
    _edge(
        MEMORY,
        "exchange-ended-by-the-drain-is-a-bug",
        ASGI,
        'refusal(503, "shutdown") if outcome.code == "shutdown" else refusal(500, "internal_error")',
        'refusal(500, "internal_error")',
        "healthy",
        "json",
    ),
    _edge(
        MEMORY,
        "nobody-is-told-that-the-service-stops",
        ASGI,
        '        if gateway.draining:\n            return refusal(503, "draining", retry_after=DRAIN_RETRY_AFTER)\n',
        "",
        "healthy",
    ),
)
