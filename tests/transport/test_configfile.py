"""From files and environment variables to a configuration with its secrets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trustme

from gate.config import PluginConfig
from gate.config_rules import ConfigInvalid
from tests.plugins import Said, WordPlugin
from transport.configfile import FILE_BYTES_MAX, Loaded, find_config, load_config

TEXT = """\
[[keys]]
name = "team-a"
key_env = "TEAM_A_KEY"

[[keys]]
name = "team-b"
key_env = "TEAM_B_KEY"

[[providers]]
name = "local"
base_url = "http://127.0.0.1:8000/v1"
api_key_env = "LOCAL_KEY"
headers = { "x-private" = "header-value" }

[[providers]]
name = "open"
base_url = "http://127.0.0.1:8001/v1"

[[models]]
alias = "small"
targets = [{ provider = "local", model = "m" }]

[filters.hook]
kind = "webhook"
url = "http://127.0.0.1:9/judge"
api_key_env = "HOOK_KEY"

[admin]
key_env = "ADMIN_KEY"
"""
ENV = {
    "TEAM_A_KEY": "caller-a",
    "TEAM_B_KEY": "caller-b",
    "LOCAL_KEY": "upstream",
    "HOOK_KEY": "hook-value",
    "ADMIN_KEY": "root-value",
}
OPENAI = {"OPENAI_BASE_URL": "https://api.example.com/v1", "OPENAI_API_KEY": "sk-1"}

PEM = """\
[[providers]]
name = "secured"
base_url = "https://127.0.0.1:1/v1"
ca = "{ca}"
client_cert = "{cert}"
"""


def written(folder: Path, text: str | bytes = TEXT, name: str = "tidegate.toml") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refused(path: Path, env: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigInvalid) as caught:
        load_config(path, ENV if env is None else env)
    return [str(problem) for problem in caught.value.problems]


def found(argument: Path | None, env: dict[str, str], cwd: Path) -> Loaded:
    loaded = find_config(argument, env, cwd)
    assert loaded is not None
    return loaded


def test_a_file_is_loaded_with_the_secrets_it_names(tmp_path: Path) -> None:
    """By the name of the key or provider; a provider without a variable has no entry."""
    path = written(tmp_path)
    loaded = load_config(path, ENV)
    assert loaded.config.models[0].alias == "small"
    assert loaded.raw["admin"] == {"key_env": "ADMIN_KEY"}
    assert loaded.secrets.keys == {"team-a": "caller-a", "team-b": "caller-b"}
    assert loaded.secrets.providers == {"local": "upstream"}
    assert loaded.secrets.filters == {"hook": "hook-value"}
    assert loaded.secrets.admin == "root-value"
    assert (loaded.source, loaded.path) == (str(path), path)


def test_no_representation_shows_a_secret_or_a_private_header(tmp_path: Path) -> None:
    """Whatever ends up in a log or a traceback has counts only."""
    loaded = load_config(written(tmp_path), ENV)
    assert repr(loaded.secrets) == "Secrets(keys=2, providers=1, filters=1, admin=True)"
    for value in [*ENV.values(), "header-value"]:
        assert value not in repr(loaded)
        assert value not in str(loaded)


def test_a_file_without_secrets_needs_no_environment(tmp_path: Path) -> None:
    """Nothing is named, nothing is asked for."""
    loaded = load_config(written(tmp_path, "[server]\nworkers = 1\n"), {})
    assert repr(loaded.secrets) == "Secrets(keys=0, providers=0, filters=0, admin=False)"


def test_every_missing_variable_is_a_problem_at_the_key_that_names_it(tmp_path: Path) -> None:
    """An empty one is missing too: it would let everybody in."""
    assert refused(written(tmp_path), {"TEAM_B_KEY": ""}) == [
        "keys[0].key_env: the environment variable TEAM_A_KEY is not set",
        "keys[1].key_env: the environment variable TEAM_B_KEY is not set",
        "providers[0].api_key_env: the environment variable LOCAL_KEY is not set",
        "filters.hook.api_key_env: the environment variable HOOK_KEY is not set",
        "admin.key_env: the environment variable ADMIN_KEY is not set",
    ]


@pytest.mark.parametrize("value", ["upstream\n", "two words", "schlüssel", "x" * 4097])
def test_a_secret_that_no_header_can_carry_is_refused_unseen(tmp_path: Path, value: str) -> None:
    """A line feed from a file is the common slip; the value is not repeated."""
    problems = refused(written(tmp_path), {**ENV, "LOCAL_KEY": value})
    assert len(problems) == 1
    assert problems[0].startswith("providers[0].api_key_env: the environment variable LOCAL_KEY ho")
    assert value not in problems[0]


def test_two_keys_with_one_secret_are_refused(tmp_path: Path) -> None:
    """Nobody could tell which of the two is calling."""
    problems = refused(written(tmp_path), {**ENV, "TEAM_B_KEY": "caller-a"})
    assert problems == ["keys[1].key_env: has the same value as keys[0].key_env"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[server]\nbind = \n", "is not TOML: Invalid value (at line 2, column 8)"),
        ("a = 1\na = 2\n", "is not TOML: Cannot overwrite a value (at line 2, column 6)"),
        ("x = [1,\n 2", "(at the end: line 2, column 3)"),
        ("x = ", "(at the end: line 1, column 5)"),
        (b"a = 1\nb = '\xff'\n", "is not UTF-8 (at line 2)"),
        ("a = " + "1" * 5000, "is not TOML that a program can hold"),
        ("a = " + "[" * 5000, "is not TOML that a program can hold"),
        (b"#" * (FILE_BYTES_MAX + 1), f"is larger than {FILE_BYTES_MAX} bytes"),
    ],
)
def test_a_file_that_is_no_toml_is_refused_with_the_place(
    tmp_path: Path, text: str | bytes, words: str
) -> None:
    """The file as the path, the line and the column in the message."""
    path = written(tmp_path, text)
    problems = refused(path)
    assert len(problems) == 1
    assert problems[0].startswith(f"{path}: is ")
    assert problems[0].endswith(words)


def test_a_file_of_the_largest_size_is_read(tmp_path: Path) -> None:
    """The bound itself is allowed."""
    assert load_config(written(tmp_path, "#" * FILE_BYTES_MAX), {}).raw == {}


def test_a_file_that_can_not_be_read_is_refused(tmp_path: Path) -> None:
    """Not there, or not a file."""
    missing = tmp_path / "missing.toml"
    assert refused(missing) == [f"{missing}: can't be read: No such file or directory"]
    assert refused(tmp_path) == [f"{tmp_path}: can't be read: Is a directory"]


def test_a_wrong_key_in_a_file_is_refused_with_its_toml_path(tmp_path: Path) -> None:
    """The same sentences as the decoder's."""
    path = written(tmp_path, "[routes.default.hold]\nopening_chars = 0\n")
    assert refused(path) == ["routes.default.hold.opening_chars: must be at least 1"]


def test_the_command_line_overrides_the_server_table_before_it_is_checked(tmp_path: Path) -> None:
    """An open bind is refused wherever it comes from, and a safe one heals the file's."""
    path = written(tmp_path, '[server]\nbind = "0.0.0.0:80"\ndrain_seconds = 1.0\n')
    server = load_config(path, {}, server={"bind": "127.0.0.1:81"}).config.server
    assert (server.bind, server.drain_seconds) == ("127.0.0.1:81", 1.0)
    with pytest.raises(ConfigInvalid, match=r"server\.bind: a bind that is not loopback"):
        load_config(written(tmp_path, ""), {}, server={"bind": "0.0.0.0:81"})


def test_an_override_does_not_hide_a_broken_server_table(tmp_path: Path) -> None:
    """What is no table can't be overridden, only reported."""
    with pytest.raises(ConfigInvalid, match="server: expected object, got int"):
        load_config(written(tmp_path, "server = 1\n"), {}, server={"workers": 1})


def test_the_argument_comes_before_the_variable_and_the_variable_before_the_folder(
    tmp_path: Path,
) -> None:
    """Each is asked only where the one before is silent; relative paths start at the folder."""
    for name in ("argument.toml", "variable.toml", "tidegate.toml"):
        written(tmp_path, "", name)
    env = {"TIDEGATE_CONFIG": "variable.toml", **OPENAI}
    by_argument = found(Path("argument.toml"), env, tmp_path)
    assert by_argument.path == tmp_path / "argument.toml"
    assert found(None, env, tmp_path).path == tmp_path / "variable.toml"
    assert found(None, OPENAI, tmp_path).path == tmp_path / "tidegate.toml"


def test_a_named_file_that_is_missing_is_not_passed_over(tmp_path: Path) -> None:
    """To run with another configuration than the one asked for would be worse than not to run."""
    written(tmp_path, "")
    for argument, env in ((Path("no.toml"), {}), (None, {"TIDEGATE_CONFIG": "no.toml"})):
        with pytest.raises(ConfigInvalid, match=r"no\.toml: can't be read"):
            find_config(argument, env, tmp_path)


def test_openai_variables_make_one_provider_and_one_alias(tmp_path: Path) -> None:
    """The model's own name is the alias that callers use."""
    loaded = found(None, {**OPENAI, "OPENAI_MODEL": "gpt-x"}, tmp_path)
    provider, model = loaded.config.providers[0], loaded.config.models[0]
    assert (provider.name, provider.base_url) == ("openai", "https://api.example.com/v1")
    assert (model.alias, model.targets[0].model) == ("gpt-x", "gpt-x")
    assert loaded.secrets.providers == {"openai": "sk-1"}
    assert loaded.path is None
    assert loaded.source == "OPENAI_BASE_URL, with the one model alias gpt-x (OPENAI_MODEL)"


def test_without_a_model_the_alias_is_default_and_the_source_says_so(tmp_path: Path) -> None:
    """A server without a key needs none, and overrides hold here as well."""
    env = {"OPENAI_BASE_URL": "http://127.0.0.1:8000/v1"}
    loaded = find_config(None, env, tmp_path, server={"bind": "127.0.0.1:9"})
    assert loaded is not None
    assert loaded.config.models[0].targets[0].model == "default"
    assert loaded.config.server.bind == "127.0.0.1:9"
    assert loaded.secrets.providers == {}
    assert "alias default (OPENAI_MODEL is not set)" in loaded.source


def test_a_bad_openai_address_is_refused(tmp_path: Path) -> None:
    """Like the same address in a file."""
    with pytest.raises(ConfigInvalid, match=r"providers\[0\]\.base_url: must be an absolute URL"):
        find_config(None, {"OPENAI_BASE_URL": "api.example.com"}, tmp_path)


def test_with_nothing_at_all_there_is_no_configuration(tmp_path: Path) -> None:
    """The caller decides what to serve then; an empty variable is none."""
    assert find_config(None, {}, tmp_path) is None
    assert find_config(None, {"TIDEGATE_CONFIG": "", "OPENAI_BASE_URL": ""}, tmp_path) is None


def test_pem_files_that_can_not_be_used_are_refused(tmp_path: Path) -> None:
    """Once the service has started nobody could be told."""
    missing, broken = tmp_path / "none.pem", written(tmp_path, "no certificate", "broken.pem")
    path = written(tmp_path, PEM.format(ca=missing, cert=broken))
    assert refused(path, {}) == [
        f"providers[0].ca: {missing} can't be read: No such file or directory",
        f"providers[0].client_cert: {broken} is no usable PEM file",
    ]


def test_pem_files_that_can_be_used_are_kept_by_name(tmp_path: Path) -> None:
    """An authority of our own, and a certificate with its key in one file."""
    authority = trustme.CA()
    ca, cert = tmp_path / "ca.pem", tmp_path / "cert.pem"
    authority.cert_pem.write_to_path(str(ca))
    authority.issue_cert("gate").private_key_and_cert_chain_pem.write_to_path(str(cert))
    provider = load_config(written(tmp_path, PEM.format(ca=ca, cert=cert)), {}).config.providers[0]
    assert (provider.ca, provider.client_cert) == (str(ca), str(cert))


@pytest.mark.parametrize(
    ("key", "value", "path"),
    [
        ("base_url", "http://256.256.256.256/v1", "providers[0].base_url"),
        ("base_url", "http://xn--a/v1", "providers[0].base_url"),
        ("headers", {"x-team": "a\tb"}, "providers[0].headers"),
    ],
)
def test_what_only_the_client_refuses_is_found_before_the_start(
    key: str, value: object, path: str, tmp_path: Path
) -> None:
    """A service that came up with it would answer nothing."""
    text = f"{json.dumps(value)}" if isinstance(value, str) else '{ x-team = "a\\tb" }'
    file = tmp_path / "t.toml"
    base = "" if key == "base_url" else 'base_url = "http://127.0.0.1:1/v1"\n'
    file.write_text(f'[[providers]]\nname = "p"\n{base}{key} = {text}\n')
    with pytest.raises(ConfigInvalid) as refused:
        load_config(file, {})
    assert [problem.path for problem in refused.value.problems] == [path]


def test_the_kinds_of_plugins_are_passed_on_with_what_was_decoded(tmp_path: Path) -> None:
    """Their options are in the configuration only: what is left of the tables is what everybody knows."""
    text = '[filters.mine]\nkind = "word"\nword = "blast"\ngating = false\n'
    plugins = {"word": WordPlugin}
    named = load_config(written(tmp_path, text), {}, plugins=plugins)
    found = find_config(Path("tidegate.toml"), {}, tmp_path, plugins=plugins)
    for loaded in (named, found):
        assert loaded is not None
        assert loaded.plugins == plugins
        assert loaded.raw == {"filters": {"mine": {"kind": "word", "gating": False}}}
        assert loaded.config.filters["mine"] == PluginConfig(
            kind="word", gating=False, options=Said(word="blast")
        )
    with pytest.raises(ConfigInvalid, match=r"filters\.mine\.kind: must be one of"):
        load_config(written(tmp_path, text), {})
