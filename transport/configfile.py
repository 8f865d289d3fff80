"""Where the configuration comes from: a file, or two environment variables, or nowhere.

Reading is all or nothing: what is returned is whole and valid, with every secret resolved; anything
else is ``ConfigInvalid``. Secrets come from the environment only, and no ``repr`` shows one.
"""

from __future__ import annotations

import re
import ssl
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gate.config import GatewayConfig
from gate.config_check import decode_config
from gate.config_plugins import NO_PLUGINS, Plugins, without_own_keys
from gate.config_rules import ConfigInvalid, Problem
from transport.pool import client_tls
from transport.provider import parse_base_url, static_headers

# A thousand models with their targets are about 200 kB: a larger file is not a configuration.
FILE_BYTES_MAX: Final = 4_194_304
# What a header can carry as a bearer token: RFC 9110 §5.5, without white space.
SECRET: Final = re.compile(r"[!-~]{1,4096}")
CONFIG_ENV: Final = "TIDEGATE_CONFIG"
DEFAULT_FILE: Final = "tidegate.toml"


@dataclass(frozen=True, slots=True, repr=False)
class Secrets:
    """Values of the environment variables that a configuration names. Its ``repr`` has only counts.

    ``keys``: by the key's name; ``providers`` and ``filters``: by name, only those that name a
    variable; ``admin``: empty where none is named.
    """

    keys: Mapping[str, str]
    providers: Mapping[str, str]
    filters: Mapping[str, str]
    admin: str

    def __repr__(self) -> str:
        return (
            f"Secrets(keys={len(self.keys)}, providers={len(self.providers)}, "
            f"filters={len(self.filters)}, admin={bool(self.admin)})"
        )


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration that may be used; ``source`` is a sentence fragment for the log.

    ``path`` is the file to read again on a reload, ``None`` where there was no file. ``raw`` is what
    was decoded, for ``gate.config_active.inactive``: without the keys that only ``plugins`` know, the
    kinds of filters that other packages have brought. Static headers may be private: the ``repr``
    leaves both forms of the configuration out.
    """

    config: GatewayConfig = field(repr=False)
    raw: Mapping[str, object] = field(repr=False)
    secrets: Secrets
    source: str
    path: Path | None = None
    plugins: Plugins = field(default_factory=dict)


def load_config(
    path: Path,
    env: Mapping[str, str],
    *,
    server: Mapping[str, object] | None = None,
    plugins: Plugins = NO_PLUGINS,
) -> Loaded:
    """Read, decode and check one file. ``server``: keys that override its ``[server]`` table; ``plugins``: see ``Loaded``.

    Raises ``ConfigInvalid``: for a file that can't be read or is not TOML with the file as the path
    (and line and column), else with the TOML path of each problem.
    """
    raw = _with_server(_read(path), server)
    config, secrets = _checked(raw, env, plugins)
    shared = without_own_keys(raw, plugins)
    return Loaded(config, shared, secrets, source=str(path), path=path, plugins=plugins)


def find_config(
    argument: Path | None,
    env: Mapping[str, str],
    cwd: Path,
    *,
    server: Mapping[str, object] | None = None,
    plugins: Plugins = NO_PLUGINS,
) -> Loaded | None:
    """The first of: ``argument``, the file $TIDEGATE_CONFIG, ``tidegate.toml`` in ``cwd``, and one
    provider from OPENAI_BASE_URL; ``None`` where there is none of them.

    Relative paths are relative to ``cwd``. A file that is named must exist. ``server``, ``plugins`` and errors
    as in ``load_config``; problems of OPENAI_BASE_URL have TOML paths too: it stands for a file.
    """
    if argument is not None:
        return load_config(cwd / argument, env, server=server, plugins=plugins)
    if env.get(CONFIG_ENV):
        return load_config(cwd / env[CONFIG_ENV], env, server=server, plugins=plugins)
    if (cwd / DEFAULT_FILE).exists():
        return load_config(cwd / DEFAULT_FILE, env, server=server, plugins=plugins)
    if env.get("OPENAI_BASE_URL"):
        return _from_openai_variables(env, server)
    return None


def _from_openai_variables(env: Mapping[str, str], server: Mapping[str, object] | None) -> Loaded:
    model = env.get("OPENAI_MODEL") or "default"
    provider = {"name": "openai", "base_url": env["OPENAI_BASE_URL"]}
    if env.get("OPENAI_API_KEY"):
        provider["api_key_env"] = "OPENAI_API_KEY"
    target = {"provider": "openai", "model": model}
    tables = {"providers": [provider], "models": [{"alias": model, "targets": [target]}]}
    raw = _with_server(tables, server)
    config, secrets = _checked(raw, env, NO_PLUGINS)
    why = "OPENAI_MODEL" if env.get("OPENAI_MODEL") else "OPENAI_MODEL is not set"
    source = f"OPENAI_BASE_URL, with the one model alias {model} ({why})"
    return Loaded(config, raw, secrets, source=source)


def _with_server(
    raw: Mapping[str, object], server: Mapping[str, object] | None
) -> Mapping[str, object]:
    table = raw.get("server", {})
    if not server or not isinstance(table, Mapping):  # a [server] that is no table is an error
        return raw
    return {**raw, "server": {**table, **server}}


def _checked(
    raw: Mapping[str, object], env: Mapping[str, str], plugins: Plugins
) -> tuple[GatewayConfig, Secrets]:
    config = decode_config(raw, plugins=plugins)
    wanted = list(_wanted(config))
    problems = [problem for path, name in wanted for problem in _unusable(path, env, name)]
    if not problems:
        problems = [*_same_secret(config, env), *_unusable_pem(config), *_unusable_client(config)]
    if problems:
        raise ConfigInvalid(tuple(problems))
    named = [provider for provider in config.providers if provider.api_key_env]
    hooks = {name: table for name, table in config.filters.items() if table.api_key_env}
    secrets = Secrets(
        keys={key.name: env[key.key_env] for key in config.keys},
        providers={provider.name: env[provider.api_key_env] for provider in named},
        filters={name: env[table.api_key_env] for name, table in hooks.items()},
        admin=env[config.admin.key_env] if config.admin.key_env else "",
    )
    return config, secrets


def _wanted(config: GatewayConfig) -> Iterator[tuple[str, str]]:
    """TOML path and name of every environment variable that the configuration names."""
    for index, key in enumerate(config.keys):
        yield f"keys[{index}].key_env", key.key_env
    for index, provider in enumerate(config.providers):
        yield f"providers[{index}].api_key_env", provider.api_key_env
    for name, table in config.filters.items():
        yield f"filters.{name}.api_key_env", table.api_key_env
    yield "admin.key_env", config.admin.key_env


def _unusable(path: str, env: Mapping[str, str], name: str) -> Iterator[Problem]:
    value = env.get(name, "")
    if name and not value:
        yield Problem(path, f"the environment variable {name} is not set")
    elif name and not SECRET.fullmatch(value):
        reason = "white space, a character beyond ASCII or more than 4096 of them"
        yield Problem(path, f"the environment variable {name} holds {reason}")


def _unusable_pem(config: GatewayConfig) -> Iterator[Problem]:
    """PEM files are read here once: the providers that need them are opened when it is too late to complain."""
    for index, provider in enumerate(config.providers):
        for name, file in (("ca", provider.ca), ("client_cert", provider.client_cert)):
            if file:
                try:
                    client_tls(**{name: file})
                except ssl.SSLError:
                    yield Problem(f"providers[{index}].{name}", f"{file} is no usable PEM file")
                except OSError as error:
                    yield Problem(
                        f"providers[{index}].{name}", f"{file} can't be read: {error.strerror}"
                    )


def _unusable_client(config: GatewayConfig) -> Iterator[Problem]:
    """What only the client's own rules refuse (a host name that IDNA has no form for, a tab in a header) is found here, too."""
    for index, provider in enumerate(config.providers):
        try:
            parse_base_url(provider.base_url)
        except ValueError as error:
            yield Problem(f"providers[{index}].base_url", str(error))
        try:
            static_headers(provider.headers, None)
        except ValueError as error:
            yield Problem(f"providers[{index}].headers", str(error))


def _same_secret(config: GatewayConfig, env: Mapping[str, str]) -> Iterator[Problem]:
    """Two keys with one secret: nobody could tell which of them is calling."""
    first: dict[str, int] = {}
    for index, key in enumerate(config.keys):
        earlier = first.setdefault(env[key.key_env], index)
        if earlier != index:
            yield Problem(
                f"keys[{index}].key_env", f"has the same value as keys[{earlier}].key_env"
            )


def _read(path: Path) -> Mapping[str, object]:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise _unread(path, f"can't be read: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise _unread(path, f"is larger than {FILE_BYTES_MAX} bytes")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _unread(path, f"is not UTF-8 (at line {line})") from None
    return _parse(path, text)


def _parse(path: Path, text: str) -> Mapping[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        row, column = text.count("\n") + 1, len(text) - text.rfind("\n")
        at_end = f"(at the end: line {row}, column {column})"
        words = str(error).replace("(at end of document)", at_end)
        raise _unread(path, f"is not TOML: {words}") from None
    except (ValueError, RecursionError):
        # A number of thousands of digits, arrays in arrays beyond Python's stack.
        raise _unread(path, "is not TOML that a program can hold") from None


def _unread(path: Path, message: str) -> ConfigInvalid:
    return ConfigInvalid((Problem(str(path), message),))
