"""From the tables of a TOML file to a ``GatewayConfig``, or to everything that is wrong with them.

Two passes, so that one run shows as much as it can: ``gate.config_shape`` walks the raw values; here
what stands across keys (names, references, sums) is checked on the decoded structs. The second pass
is left out where the shape does not decode.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, get_args

import msgspec

from gate.config import (
    TABLE_KINDS,
    FilterConfig,
    FilterKind,
    GatewayConfig,
    KeyConfig,
    LimitsConfig,
    ModelConfig,
    PluginConfig,
    ProviderConfig,
    RouteConfig,
)
from gate.config_plugins import (
    NO_PLUGINS,
    Plugins,
    option_problems,
    with_options,
    without_own_keys,
)
from gate.config_rules import (
    ConfigInvalid,
    Problem,
    bind,
    env_name,
    is_loopback,
    join,
    known_name,
    model_name,
    parse_bind,
    static_headers,
    token,
    unique,
    url,
)
from gate.config_shape import shape_problems
from gate.filters.pattern_sets import PATTERN_SETS
from gate.regex import PatternInvalid, compile_patterns

UNREPAIRABLE: Final = frozenset({"patterns", "repetition", "encoding"})


def decode_config(raw: Mapping[str, object], *, plugins: Plugins = NO_PLUGINS) -> GatewayConfig:
    """Decode the tables of one file (as ``tomllib`` gives them) and check them as a whole.

    ``plugins``: the kinds of filters that other packages have brought; their tables become a
    ``PluginConfig``. The route ``default`` is added where the file has none. Raises
    ``ConfigInvalid`` with every problem of the shape and, where the shape decodes, every problem
    across keys as well.
    """
    shared = without_own_keys(raw, plugins)
    wrong = list(option_problems(raw, plugins))
    problems = [*shape_problems(shared, plugins=plugins), *wrong]
    try:
        config = msgspec.convert(shared, GatewayConfig)
    except msgspec.ValidationError:
        raise ConfigInvalid(tuple(problems)) from None
    if "default" not in config.routes:
        routes = {**config.routes, "default": RouteConfig()}
        config = msgspec.structs.replace(config, routes=routes)
    if not wrong:
        config = with_options(config, raw, plugins)
    problems.extend(_across(config))
    if problems:
        raise ConfigInvalid(tuple(problems))
    return config


def _across(config: GatewayConfig) -> Iterator[Problem]:
    yield from _server(config)
    yield from _limits(config.limits)
    yield from _keys(config)
    yield from _providers(config.providers)
    yield from _models(config)
    yield from _routes(config)
    yield from _filters(config.filters)
    yield from env_name("admin.key_env", config.admin.key_env)
    if config.admin.bind:
        yield from bind("admin.bind", config.admin.bind)
    if config.store.url:
        yield from url("store.url", config.store.url, schemes=("valkey", "redis"))
    if config.observe.otlp_endpoint:
        yield from url("observe.otlp_endpoint", config.observe.otlp_endpoint)


def _server(config: GatewayConfig) -> Iterator[Problem]:
    server = config.server
    problems = list(bind("server.bind", server.bind))
    yield from problems
    open_door = not config.keys and not server.insecure
    if open_door and not problems and not is_loopback(parse_bind(server.bind)[0]):
        reason = "a bind that is not loopback needs [[keys]] or server.insecure = true"
        yield Problem("server.bind", reason)
    if server.tls_cert and not server.tls_key:
        yield Problem("server.tls_key", "is missing: tls_cert and tls_key go together")
    if server.tls_key and not server.tls_cert:
        yield Problem("server.tls_cert", "is missing: tls_cert and tls_key go together")


def _limits(limits: LimitsConfig) -> Iterator[Problem]:
    pairs = (
        ("event_bytes_max", "held_bytes_max"),
        ("held_bytes_max", "exchange_bytes_max"),
        ("body_bytes_max", "exchange_bytes_max"),
        ("exchange_bytes_max", "process_bytes_max"),
    )
    for small, large in pairs:
        bound = getattr(limits, large)
        if getattr(limits, small) > bound:
            yield Problem(f"limits.{small}", f"must be at most limits.{large} ({bound})")


def _keys(config: GatewayConfig) -> Iterator[Problem]:
    aliases = [model.alias for model in config.models]
    yield from unique([key.name for key in config.keys], "keys", leaf=".name")
    yield from unique([key.key_env for key in config.keys], "keys", leaf=".key_env")
    for index, key in enumerate(config.keys):
        yield from _key(key, aliases, f"keys[{index}]")


def _key(key: KeyConfig, aliases: list[str], path: str) -> Iterator[Problem]:
    yield from token(f"{path}.name", key.name)
    if not key.key_env:
        yield Problem(f"{path}.key_env", "must not be empty")
    yield from env_name(f"{path}.key_env", key.key_env)
    for index, alias in enumerate(key.models):
        yield from known_name(f"{path}.models[{index}]", alias, aliases, noun="alias")


def _providers(providers: tuple[ProviderConfig, ...]) -> Iterator[Problem]:
    yield from unique([provider.name for provider in providers], "providers", leaf=".name")
    for index, provider in enumerate(providers):
        path = f"providers[{index}]"
        yield from token(f"{path}.name", provider.name)
        yield from url(f"{path}.base_url", provider.base_url)
        yield from env_name(f"{path}.api_key_env", provider.api_key_env)
        yield from static_headers(f"{path}.headers", provider.headers)


def _models(config: GatewayConfig) -> Iterator[Problem]:
    yield from unique([model.alias for model in config.models], "models", leaf=".alias")
    providers = [provider.name for provider in config.providers]
    for index, model in enumerate(config.models):
        path = f"models[{index}]"
        yield from model_name(f"{path}.alias", model.alias)
        yield from known_name(f"{path}.route", model.route, config.routes, noun="route")
        yield from _targets(model, providers, f"{path}.targets")


def _targets(model: ModelConfig, providers: list[str], path: str) -> Iterator[Problem]:
    if not model.targets:
        yield Problem(path, "must not be empty")
    for index, target in enumerate(model.targets):
        place = f"{path}[{index}]"
        yield from known_name(f"{place}.provider", target.provider, providers, noun="provider")
        yield from model_name(f"{place}.model", target.model)


def _routes(config: GatewayConfig) -> Iterator[Problem]:
    usable = [kind for kind in get_args(FilterKind) if kind not in TABLE_KINDS]
    known = list(dict.fromkeys([*usable, *config.filters]))
    for name, route in config.routes.items():
        path = join("routes", name)
        yield from token(path, name)
        yield from unique(route.filters, f"{path}.filters")
        for index, entry in enumerate(route.filters):
            yield from known_name(f"{path}.filters[{index}]", entry, known, noun="filter")


def _filters(filters: Mapping[str, FilterConfig]) -> Iterator[Problem]:
    for name, table in filters.items():
        path = join("filters", name)
        yield from token(path, name)
        if name in get_args(FilterKind) and name != table.kind:
            yield Problem(path, "is the name of a built-in kind, and the table is of another")
        unrepairable = table.kind in UNREPAIRABLE or isinstance(table, PluginConfig)
        if table.action == "schema" and unrepairable:
            reason = f"{table.kind} can't say what a repair would have to mend"
            yield Problem(f"{path}.action", reason)
        if table.kind == "patterns":
            yield from _patterns(path, table)
        if table.kind == "webhook":
            yield from url(f"{path}.url", table.url)
            yield from env_name(f"{path}.api_key_env", table.api_key_env)


def _patterns(path: str, table: FilterConfig) -> Iterator[Problem]:
    if bool(table.patterns) == bool(table.pattern_set):
        yield Problem(f"{path}.patterns", "needs either patterns or pattern_set")
    if table.patterns:
        try:
            compile_patterns(table.patterns)
        except PatternInvalid as error:
            which = "" if error.index is None else f"[{error.index}]"
            yield Problem(f"{path}.patterns{which}", error.reason)
    if table.pattern_set:
        noun = "pattern set"
        yield from known_name(f"{path}.pattern_set", table.pattern_set, PATTERN_SETS, noun=noun)
