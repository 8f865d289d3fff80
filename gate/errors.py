"""Every expected error on one page.

    GateError                        expected; carries a public code, a status, whether a retry may help, and whose fault it is
      RequestRefused                 the caller's request can't be served as it is (4xx, or 503 at a limit)
      BudgetExceeded                 a memory budget has no room; nothing was allocated
      SnapshotClosed                 the ingress snapshot was used after its exchange
      UpstreamFailed                 the provider's connection or its HTTP failed (raised by the provider port only)
      CallerGone                     the caller left while something was written to it

Anything else that is raised is a bug of ours: the exchange ends with `internal_error`, and it is logged and counted.
Errors are raised inside one task; between tasks they travel as values (`gate.failure.Failure`, `gate.events.Refused`).
"""

from __future__ import annotations

from enum import Enum

__all__ = [
    "BudgetExceeded",
    "CallerGone",
    "GateError",
    "RequestRefused",
    "SnapshotClosed",
    "Source",
    "UpstreamFailed",
    "UpstreamFault",
]


class Source(Enum):
    """Whose side an error is on."""

    CALLER = "caller"
    PROVIDER = "provider"
    GATE = "gate"


class GateError(Exception):
    """An expected error. `public_code` is a stable token; no text of a provider or a prompt is ever part of it."""

    public_code: str = "gate_error"
    http_status: int = 500
    retryable: bool = False
    source: Source = Source.GATE


class RequestRefused(GateError):
    """The request is refused before any attempt. `param` is a path into the request, made of its own member names."""

    source = Source.CALLER

    def __init__(
        self, status: int, code: str, *, param: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(code)
        self.http_status = status
        self.public_code = code
        self.param = param
        self.retry_after = retry_after
        self.retryable = status in {429, 503}


class BudgetExceeded(GateError):
    """A reservation would go over its budget (`scope`: `exchange` or `process`)."""

    http_status = 503
    retryable = True

    def __init__(self, scope: str, *, wanted: int, free: int) -> None:
        super().__init__(f"{scope} budget: {wanted} bytes wanted, {free} free")
        self.public_code = "exchange_budget" if scope == "exchange" else "process_budget"
        self.scope = scope


class SnapshotClosed(GateError):
    """The snapshot's bytes went back to the budget already."""

    public_code = "snapshot_closed"


class UpstreamFault(Enum):
    """How a provider's connection failed."""

    CONNECT = "connect"  # no connection, or no TLS
    RESET = "reset"  # lost before a response head came
    CUT = "cut"  # lost, or ended early, inside the body
    PROTOCOL = "protocol"  # not HTTP/1.1, or beyond a limit of ours
    ENCODING = "encoding"  # a content encoding that we can't undo


class UpstreamFailed(GateError):
    """The provider port failed. `reused`: the connection had served a request before."""

    http_status = 502
    retryable = True
    source = Source.PROVIDER

    def __init__(self, fault: UpstreamFault, *, reused: bool = False) -> None:
        super().__init__(fault.value)
        self.public_code = f"provider_{fault.value}"
        self.fault = fault
        self.reused = reused


class CallerGone(GateError):
    """The caller closed its side; nothing more can reach it."""

    public_code = "caller_gone"
    source = Source.CALLER
