"""The configuration: one frozen struct per TOML table, each limit with its reason beside it.

Nothing here reads a file, an environment variable or a clock. A struct built by hand is not
checked; ``gate.config_check.decode_config`` is the one way in for what an operator wrote. A default
that is shown here is the value that holds when the key is left out. Durations and sizes carry their
unit in the name; where 0 means "off" or "no limit" the comment says so.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of a number, in the unit of its key; ``exclusive``: ``low`` itself is refused."""

    low: float
    high: float
    exclusive: bool = False


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every TOML table: a key that is not declared is an error."""


# A longer duration is a slip of the unit (milliseconds for seconds), not a wish.
_DAY: Final = 86_400.0
_DAY_MS: Final = 86_400_000
# More than one machine holds: a larger number is a slip.
_BYTES_MAX: Final = 1 << 40
_COUNT_MAX: Final = 1_000_000_000

Seconds = Annotated[float, Range(low=0, high=_DAY, exclusive=True)]
SecondsOrOff = Annotated[float, Range(low=0, high=_DAY)]
Milliseconds = Annotated[int, Range(low=0, high=_DAY_MS)]
ByteCount = Annotated[int, Range(low=1, high=_BYTES_MAX)]
Count = Annotated[int, Range(low=1, high=_COUNT_MAX)]
CountOrNone = Annotated[int, Range(low=0, high=_COUNT_MAX)]
Share = Annotated[float, Range(low=0, high=1)]

PathKind = Literal["normalized", "tunnel"]
Prefill = Literal["none", "vllm", "prefix", "partial", "assistant"]
Capability = Literal["tools", "json_schema", "vision", "audio", "responses", "reasoning"]
StructuredOutput = Literal["off", "check", "repair", "reject"]
OutputPolicy = Literal["off", "strict"]
ReasoningField = Literal["reasoning_content", "reasoning"]
HoldMode = Literal["live", "window", "buffered"]
HoldReasoning = Literal["hold", "release"]
OverCap = Literal["fail", "release"]
ContinuationMode = Literal["off", "held", "committed"]
FallbackOn = Literal["context_length", "content_filter", "auth", "not_found"]
FilterKind = Literal[
    "patterns",
    "repetition",
    "empty",
    "encoding",
    "refusal",
    "tool_calls",
    "structured_output",
    "output_policy",
    "webhook",
]
FilterAction = Literal["error", "exact", "next_provider", "schema", "continuation"]
FilterFailure = Literal["open", "closed"]
WebhookShape = Literal["judge", "moderation"]
BufferedError = Literal["status", "stream"]
TunnelCut = Literal["mark", "end"]
LogFormat = Literal["json", "text"]
RecordContent = Literal["hash", "redact", "full"]


class ServerConfig(Table, frozen=True, kw_only=True):
    """``[server]``: the listener and its life."""

    bind: str = "127.0.0.1:8080"  # host:port, [v6]:port; port 0: the system picks one
    workers: Annotated[int, Range(low=1, high=256)] = 1
    drain_seconds: SecondsOrOff = 30.0  # what is in flight may finish for so long after SIGTERM
    # A caller that takes no byte for so long is let go; the kernel counts it in milliseconds.
    caller_write_seconds: Seconds = 60.0
    insecure: bool = False  # True: a bind that is not loopback is allowed without keys
    tls_cert: str = ""  # PEM file; with tls_key: an HTTPS listener
    tls_key: str = ""


class LimitsConfig(Table, frozen=True, kw_only=True):
    """``[limits]``; the reason of each is in ``LIMIT_REASONS``."""

    body_bytes_max: ByteCount = 33_554_432
    body_seconds_max: Seconds = 60.0
    header_bytes_max: ByteCount = 65_536
    # Above 512 a recursive decoder would meet Python's own stack limit first.
    json_depth_max: Annotated[int, Range(low=1, high=512)] = 64
    exchange_bytes_max: ByteCount = 150_994_944
    process_bytes_max: ByteCount = 1_073_741_824
    held_bytes_max: ByteCount = 33_554_432
    event_bytes_max: ByteCount = 8_388_608
    exchanges_max: Count = 1024
    queue_max: CountOrNone = 256
    queue_seconds_max: SecondsOrOff = 10.0
    observations_max: Count = 10_000


LIMIT_REASONS: Final[Mapping[str, str]] = types.MappingProxyType(
    {
        "limits.body_bytes_max": "the caller's request body; 32 MiB holds a long chat with images",
        "limits.body_seconds_max": "for the whole body, so that a trickling caller frees its place",
        "limits.header_bytes_max": "the request's head, before a key is looked at",
        "limits.json_depth_max": "depth costs stack, not bytes, and real requests nest far below it",
        "limits.exchange_bytes_max": (
            "snapshot, patch and rebuilt body may each be body_bytes_max at once, "
            "and held evidence comes on top"
        ),
        "limits.process_bytes_max": "the same over all exchanges of a worker",
        "limits.held_bytes_max": (
            "raw bytes of unreleased evidence of one exchange: 322 bytes per token measured, "
            "about 100,000 tokens"
        ),
        "limits.event_bytes_max": "one SSE event; a picture in base64 fits",
        "limits.exchanges_max": "at once in a worker; more wait in the queue",
        "limits.queue_max": "a longer queue only adds waiting; 0: nobody waits",
        "limits.queue_seconds_max": "after it 503 with Retry-After is more use than waiting",
        "limits.observations_max": "queue to the sinks; beyond it they are dropped and counted",
    }
)


class KeyConfig(Table, frozen=True, kw_only=True):
    """``[[keys]]``: one caller; the secret itself stands in the variable ``key_env``."""

    name: str
    key_env: str
    models: tuple[str, ...] = ()  # aliases this key may use; empty: all
    requests_per_minute: CountOrNone = 600  # 0: no limit, here and below
    tokens_per_minute: CountOrNone = 0
    exchanges_max: CountOrNone = 50


class BreakerConfig(Table, frozen=True, kw_only=True):
    """``providers.breaker``: when a provider is left alone, and for how long."""

    failures: Count = 5
    open_seconds: Seconds = 30.0


class ProviderConfig(Table, frozen=True, kw_only=True):
    """``[[providers]]``: one upstream server."""

    name: str
    base_url: str
    api_key_env: str = ""  # empty: no Authorization is sent
    path: PathKind = "normalized"
    prefill: Prefill = "none"
    capabilities: tuple[Capability, ...] = ("tools", "json_schema", "vision", "responses")
    concurrency_max: Annotated[int, Range(low=1, high=65_535)] = 64  # one connection each
    ask_usage: bool = False  # ask for the usage chunk, and hide it where the caller did not
    idempotency_header: bool = False  # send the plan's key as Idempotency-Key
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    ca: str = ""  # PEM file, client_cert likewise
    client_cert: str = ""
    breaker: BreakerConfig = BreakerConfig()


class TargetConfig(Table, frozen=True, kw_only=True):
    """One entry of ``models.targets``; ``None``: as the provider says."""

    provider: str
    model: str
    priority: CountOrNone = 0  # lower is asked first
    weight: Count = 1
    prefill: Prefill | None = None
    capabilities: tuple[Capability, ...] | None = None
    context_tokens: CountOrNone = 0  # 0: unknown


class ModelConfig(Table, frozen=True, kw_only=True):
    """``[[models]]``: an alias that callers name, and the targets that serve it."""

    alias: str
    targets: tuple[TargetConfig, ...]
    route: str = "default"


class HoldConfig(Table, frozen=True, kw_only=True):
    """``routes.*.hold``: how much stays evidence, and for how long."""

    mode: HoldMode = "live"
    opening_chars: Count = 1  # nothing is released before this much answer content has passed ...
    opening_ms: Milliseconds = 0  # ... and this long after the first of it
    tail_chars: CountOrNone = 0
    tail_ms: Milliseconds = 0
    reasoning: HoldReasoning = "hold"
    over_cap: OverCap = "fail"
    pings_commit: bool = False
    ping_seconds: Seconds = 15.0  # below the 60 s of silence that common proxies allow


class ClocksConfig(Table, frozen=True, kw_only=True):
    """``routes.*.clocks``: how long a provider may take; a slow caller never counts."""

    connect_seconds: Seconds = 5.0
    headers_seconds: Seconds = 60.0
    first_content_seconds: Seconds = 60.0
    gap_seconds: Seconds = 30.0  # between progress; comments and empty deltas are not progress
    json_seconds: Seconds = 180.0  # a whole non-streamed answer: about 4,000 tokens at 25 a second
    total_seconds: SecondsOrOff = 600.0  # never ends an attempt that makes progress; 0: off
    stream_seconds_max: SecondsOrOff = 0.0  # bounds even a stream that makes progress; 0: off
    finish_grace_seconds: SecondsOrOff = 2.0  # for usage and [DONE] after a finish reason
    chars_per_second_min: Annotated[float, Range(low=0, high=1_000_000)] = 0.0  # over 10 s; 0: off
    # Patience where no other attempt could follow; below 1 it would be haste.
    last_candidate_factor: Annotated[float, Range(low=1, high=1000)] = 2.0


class RecoveryConfig(Table, frozen=True, kw_only=True):
    """``routes.*.recovery``: what may be tried after a failure."""

    attempts_max: Annotated[int, Range(low=1, high=100)] = 3  # the first one counts
    same_target_retries: Annotated[int, Range(low=0, high=100)] = 1
    continuation: ContinuationMode = "held"
    schema_repairs_max: Annotated[int, Range(low=0, high=100)] = 1
    backoff_seconds: SecondsOrOff = 0.25
    retry_budget_share: Share = 0.2
    retry_budget_floor: CountOrNone = 10
    seam_chars: Annotated[int, Range(low=0, high=65_536)] = 64  # held until the seam is judged
    fallback_on: tuple[FallbackOn, ...] = ("auth",)
    loop_temperature_add: Annotated[float, Range(low=0, high=2)] = 0.0  # 2: the largest in use


class RouteConfig(Table, frozen=True, kw_only=True):
    """``[routes.*]``: the policy of the aliases that name it."""

    filters: tuple[str, ...] = (
        "empty",
        "repetition",
        "encoding",
        "tool_calls",
        "structured_output",
    )
    structured_output: StructuredOutput = "repair"
    output_policy: OutputPolicy = "off"
    think_tags: bool = False
    reasoning_field: ReasoningField = "reasoning_content"  # the name that is written
    responses_over_chat: bool = False
    hold: HoldConfig = HoldConfig()
    clocks: ClocksConfig = ClocksConfig()
    recovery: RecoveryConfig = RecoveryConfig()


class FilterConfig(Table, frozen=True, kw_only=True):
    """``[filters.*]``; ``FILTER_KEYS`` says which of the later keys a kind knows.

    ``horizon_chars``, ``chars_min``, ``repeats_min`` and ``batch_ms``: 0 is the kind's own default.
    """

    kind: str  # a FilterKind, or that of a plug-in
    # Left out: the kind's own; `patterns` ends in an error, the others recover as their faults do.
    action: FilterAction | None = None
    gating: bool = True  # False: observes only
    failure: FilterFailure = "closed"
    deadline_ms: Annotated[int, Range(low=1, high=600_000)] = 500
    horizon_chars: CountOrNone = 0
    patterns: tuple[str, ...] = ()
    pattern_set: str = ""
    chars_min: CountOrNone = 0
    repeats_min: CountOrNone = 0
    url: str = ""
    api_key_env: str = ""
    batch_ms: Milliseconds = 0
    shape: WebhookShape = "judge"  # what is asked and answered: our own, or a moderation endpoint's


class PluginConfig(FilterConfig, frozen=True, kw_only=True):
    """``[filters.*]`` of a plug-in's kind; ``options``: the keys that are its own, decoded and checked."""

    options: Table


# The keys that belong to one kind; a key that is in no row is known to every kind.
FILTER_KEYS: Final[Mapping[str, frozenset[str]]] = types.MappingProxyType(
    {
        "patterns": frozenset({"patterns", "pattern_set"}),
        "repetition": frozenset({"chars_min", "repeats_min"}),
        "webhook": frozenset({"url", "api_key_env", "batch_ms", "shape"}),
    }
)
# Kinds that say nothing without a table of their own.
TABLE_KINDS: Final[frozenset[str]] = frozenset({"patterns", "webhook"})


class CompatConfig(Table, frozen=True, kw_only=True):
    """``[compat]``: older contracts for callers that were built on them."""

    buffered_error: BufferedError = "status"
    tunnel_cut: TunnelCut = "mark"


class AdminConfig(Table, frozen=True, kw_only=True):
    """``[admin]``: empty ``key_env``: admin and console only on loopback binds."""

    key_env: str = ""
    bind: str = ""  # own listener; empty: the server's


class StoreConfig(Table, frozen=True, kw_only=True):
    """``[store]``: state shared over machines; empty: in process."""

    url: str = ""


class ObserveConfig(Table, frozen=True, kw_only=True):
    """``[observe]``: log, traces, telemetry."""

    log: LogFormat = "json"
    record_dir: str = ""  # empty: nothing is recorded
    record_content: RecordContent = "hash"
    record_bytes_max: ByteCount = 1_073_741_824  # beyond it the oldest segment goes
    sample_success: Share = 0.01
    sample_failure: Share = 1.0
    explain: bool = True  # false: no caller is told what is decided, whatever its request asks for
    otlp_endpoint: str = ""


class GatewayConfig(Table, frozen=True, kw_only=True):
    """The whole file. After ``decode_config`` the route ``default`` is always there."""

    server: ServerConfig = ServerConfig()
    limits: LimitsConfig = LimitsConfig()
    keys: tuple[KeyConfig, ...] = ()
    providers: tuple[ProviderConfig, ...] = ()
    models: tuple[ModelConfig, ...] = ()
    routes: Mapping[str, RouteConfig] = msgspec.field(default_factory=dict)
    filters: Mapping[str, FilterConfig] = msgspec.field(default_factory=dict)
    compat: CompatConfig = CompatConfig()
    admin: AdminConfig = AdminConfig()
    store: StoreConfig = StoreConfig()
    observe: ObserveConfig = ObserveConfig()
