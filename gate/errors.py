"""Every expected error on one page.

    GateError                        expected; carries a public code, a status, whether a retry may help, and whose fault it is
      RequestRefused                 the caller's request can't be served as it is (4xx, or 503 at a limit)
      BudgetExceeded                 a memory budget has no room; nothing was allocated
        RebuildOverflow              a patch or a rebuilt body has no room; recovery goes on without that plan
      SchemaUnusable                 a JSON Schema of the caller's can't be judged by; what it would judge passes
      SnapshotClosed                 the ingress snapshot was used after its exchange
      RebuildRefused                 a rebuild, or a step of one, was asked for what it may not do; nothing changed
        EndpointUnsupported          no request of that endpoint can be rebuilt
        RebuilderClosed              the rebuilder takes no more rebuilds
        StoreClosed                  put into, or taken from, a store after its close
        RefMalformed                 a request ref is no stable token
        SnapshotMismatch             the ref names another snapshot than the rebuilder's
        RequestMismatch              an exact plan names another request than the snapshot's
        PlanNotReady                 the plan lacks a target or a ref
        PlanAlreadyUsed              the plan was carried out before
        PatchInvalid                 key, cursor or value of a patch are not what they should be
        PatchDuplicate               a patch is stored under that key already
        PatchUnavailable             no patch is stored under that key, or one for another cursor
        LeaseDuplicate               a rebuilt request is stored under that ref already
        LeaseUnavailable             no rebuilt request is stored under that ref, or not any more
        LeaseReleased                the body of a rebuilt request was asked for after its release
      UpstreamFailed                 the provider's connection or its HTTP failed (raised by the provider port only)
      FilterUnavailable              a filter that awaits could not be asked (raised by its port only)
      CallerGone                     the caller left while something was written to it

Anything else that is raised is a bug of ours: the exchange ends with `internal_error`, and it is logged and counted.
Errors are raised inside one task; between tasks they travel as values (`gate.failure.Failure`, `gate.events.Refused`).
"""

from __future__ import annotations

from enum import Enum

__all__ = [
    "BudgetExceeded",
    "CallerGone",
    "EndpointUnsupported",
    "FilterUnavailable",
    "GateError",
    "LeaseDuplicate",
    "LeaseReleased",
    "LeaseUnavailable",
    "PatchDuplicate",
    "PatchInvalid",
    "PatchUnavailable",
    "PlanAlreadyUsed",
    "PlanNotReady",
    "RebuildOverflow",
    "RebuildRefused",
    "RebuilderClosed",
    "RefMalformed",
    "RequestMismatch",
    "RequestRefused",
    "SchemaUnusable",
    "SnapshotClosed",
    "SnapshotMismatch",
    "Source",
    "StoreClosed",
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
        self.wanted = wanted
        self.free = free


class RebuildOverflow(BudgetExceeded):
    """A patch, or the body rebuilt with it, does not fit beside what is held already."""

    def __init__(self, scope: str, *, wanted: int, free: int) -> None:
        super().__init__(scope, wanted=wanted, free=free)
        self.public_code = "rebuild_overflow"


class SchemaUnusable(GateError):
    """A schema that is no schema, refers to something outside itself, or would take too much to judge by. The text is the code."""

    public_code = "schema_unusable"
    http_status = 400
    source = Source.CALLER

    def __init__(self) -> None:
        super().__init__(self.public_code)


class SnapshotClosed(GateError):
    """The snapshot's bytes went back to the budget already."""

    public_code = "snapshot_closed"


class RebuildRefused(GateError):
    """Nothing was rebuilt, put or taken, and nothing changed. The text of the exception is its code."""

    public_code = "rebuild_refused"

    def __init__(self) -> None:
        super().__init__(self.public_code)


class EndpointUnsupported(RebuildRefused):
    """Only requests of chat and of responses can be rebuilt."""

    public_code = "endpoint_unsupported"


class RebuilderClosed(RebuildRefused):
    """Its close has begun."""

    public_code = "rebuilder_closed"


class StoreClosed(RebuildRefused):
    """The store has given everything back."""

    public_code = "store_closed"


class RefMalformed(RebuildRefused):
    """A snapshot ref that is no stable token."""

    public_code = "ref_malformed"


class SnapshotMismatch(RebuildRefused):
    """The ref is of another exchange."""

    public_code = "snapshot_mismatch"


class RequestMismatch(RebuildRefused):
    """What is sent again exactly is the snapshot, and nothing else."""

    public_code = "request_mismatch"


class PlanNotReady(RebuildRefused):
    """The plan can't be carried out as it stands."""

    public_code = "plan_not_ready"


class PlanAlreadyUsed(RebuildRefused):
    """A plan is carried out at most once."""

    public_code = "plan_already_used"


class PatchInvalid(RebuildRefused):
    """`part`: what is wrong, `key`, `cursor` or `value`."""

    def __init__(self, part: str) -> None:
        self.public_code = f"patch_{part}_invalid"
        super().__init__()
        self.part = part


class PatchDuplicate(RebuildRefused):
    """The stored one stays."""

    public_code = "patch_duplicate"


class PatchUnavailable(RebuildRefused):
    """A patch for another cursor stays where it is."""

    public_code = "patch_unavailable"


class LeaseDuplicate(RebuildRefused):
    """The stored one stays."""

    public_code = "lease_duplicate"


class LeaseUnavailable(RebuildRefused):
    """A rebuilt request is taken once."""

    public_code = "lease_unavailable"


class LeaseReleased(RebuildRefused):
    """Its bytes went back to the budget already."""

    public_code = "lease_released"


class UpstreamFault(Enum):
    """How a provider's connection failed."""

    CONNECT = "connect"  # no connection, or no TLS
    RESET = "reset"  # lost before a response head came
    CUT = "cut"  # lost, or ended early, inside the body
    CLOSED = "closed"  # closed in order, behind a body that nothing but this ends: whether it is whole, HTTP does not say
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


class FilterUnavailable(GateError):
    """A filter that awaits has no answer. `code` says why: a stable token, for the filter's notice."""

    http_status = 503
    retryable = True

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.public_code = code


class CallerGone(GateError):
    """The caller closed its side; nothing more can reach it."""

    public_code = "caller_gone"
    source = Source.CALLER
