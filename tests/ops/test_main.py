"""The command line: usage, offline checks, and the service as a process."""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
from pathlib import Path
from typing import Final

import httpx
import pytest
from typer.testing import CliRunner, Result

from gate.config import ServerConfig
from ops.__main__ import cli
from ops.provider import running_provider
from ops.provider_script import Pace, Script
from tests.transport.edge import CHAT, question, running_process, write_config
from transport.serve import open_listener

NOBODY: Final = "http://127.0.0.1:9/v1"
NOWHERE: Final = {"TIDEGATE_CONFIG": "", "OPENAI_BASE_URL": "", "OPENAI_API_KEY": ""}


def run(*arguments: str) -> Result:
    """`tidegate ARGUMENTS` in this process, with no configuration in the environment."""
    return CliRunner().invoke(cli, list(arguments), env={**NOWHERE, "TERM": "dumb"})


def refused(*arguments: str) -> str:
    """What it says on standard error, where it exits with 2 and not by an exception of ours."""
    result = run(*arguments)
    assert isinstance(result.exception, SystemExit)
    assert result.exit_code == 2
    assert result.stderr.strip()
    assert "Traceback" not in result.output
    return result.stderr


def test_help_names_every_command() -> None:
    """Also where nothing was asked for."""
    helped = run("--help")
    assert helped.exit_code == 0
    for command in ("serve", "check-config", "provider"):
        assert command in helped.stdout
        assert run(command, "--help").exit_code == 0
    assert "serve" in run().output


def test_the_version_is_the_package_s() -> None:
    """One line."""
    shown = run("--version")
    assert shown.exit_code == 0
    assert re.fullmatch(r"tidegate \d+\.\d+\.\d+\n", shown.stdout)


@pytest.mark.parametrize(
    "arguments",
    [["frobnicate"], ["check-config"], ["serve", "--locla", "2"], ["serve", "--workers", "two"]],
)
def test_bad_usage_is_explained(arguments: list[str]) -> None:
    """With what to try."""
    assert "Try" in refused(*arguments)


def test_a_good_file_is_ok(tmp_path: Path) -> None:
    """What does nothing yet is said before."""
    path = write_config(tmp_path, NOBODY, tables='[store]\nurl = "valkey://127.0.0.1:1"')
    result = run("check-config", str(path))
    assert result.exit_code == 0
    note, verdict = result.stdout.splitlines()
    assert note.startswith("not active yet: ")
    assert "store.url" in note
    assert verdict == f"{path}: ok"


def test_a_good_file_with_nothing_idle_in_it_is_just_ok(tmp_path: Path) -> None:
    """No note for the sake of a note."""
    path = write_config(tmp_path, NOBODY, tables='[routes.default]\nfilters = ["empty"]')
    assert run("check-config", str(path)).stdout == f"{path}: ok\n"


def test_every_error_of_a_file_is_printed_with_its_path(tmp_path: Path) -> None:
    """In one go."""
    tables = "[server]\nlocla = 1\ndrain_seconds = -1.0\n[limits]\nqueue_max = true"
    said = refused("check-config", str(write_config(tmp_path, NOBODY, tables=tables)))
    for path in ("server.locla: ", "server.drain_seconds: ", "limits.queue_max: "):
        assert path in said


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "can't be read: No such file"), ("[server", "is not TOML"), ("[[keys]]", "keys[0]")],
)
def test_a_file_that_can_not_be_used_is_named(
    tmp_path: Path, content: str | None, words: str
) -> None:
    """By the check and by the service alike."""
    path = tmp_path / "bad.toml"
    if content is not None:
        path.write_text(content)
    for command in (["check-config"], ["serve", "--config"]):
        assert words in refused(*command, str(path))


def test_an_option_that_can_not_be_used_has_the_path_of_its_key(tmp_path: Path) -> None:
    """It stands for that key; it is checked with or without a file."""
    path = write_config(tmp_path, NOBODY)
    assert "server.bind: " in refused("serve", "--config", str(path), "--bind", "nonsense")
    assert "server.workers: " in refused("serve", "--config", str(path), "--workers", "0")


def test_a_bad_bind_is_refused_for_the_demo_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is found here, so the embedded provider has started already."""
    monkeypatch.chdir(tmp_path)
    assert "server.bind: " in refused("serve", "--bind", "nonsense")


@pytest.mark.parametrize("with_file", [True, False])
def test_an_address_that_is_taken_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_file: bool
) -> None:
    """With a configuration and for the demo."""
    monkeypatch.chdir(tmp_path)
    config = ["--config", str(write_config(tmp_path, NOBODY))] if with_file else []
    with open_listener(ServerConfig(bind="127.0.0.1:0")) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refused("serve", "--bind", bind, *config)
    assert f"cannot listen on {bind}: Address already in use" in said


def test_the_provider_refuses_a_bad_address() -> None:
    """Like the service."""
    assert "HOST:PORT" in refused("provider", "--bind", "nonsense")


def test_what_a_provider_and_a_search_know_by_name_is_listed() -> None:
    """With an exit code of 0, and nothing is served or struck."""
    listed = run("provider", "--list")
    assert listed.exit_code == 0
    assert "  reuse-race" in listed.stdout
    listed = run("chaos", "--list")
    assert listed.exit_code == 0
    assert "  healthy " in listed.stdout


def test_an_unknown_fault_and_a_bad_search_are_bad_usage() -> None:
    """With what there is."""
    assert "there are cut-chunked, " in refused("provider", "--script", "nosuch")
    assert "no ring '0'" in refused("chaos", "--ring", "0")
    assert "--jobs -1" in refused("chaos", "--jobs", "-1")


@pytest.mark.e2e
async def test_the_service_without_a_configuration_is_a_demo(tmp_path: Path) -> None:
    """It says so, what it prints can be tried as it stands, and SIGTERM ends it with 0."""
    command = ("ops", "serve", "--bind", "127.0.0.1:0")
    async with running_process(*command, env=NOWHERE, cwd=tmp_path) as process:
        printed = process.output()
        assert "no configuration found: using the embedded demo provider" in printed
        tried = shlex.split(printed[printed.index("  curl") : printed.index("}'") + 2])
        async with httpx.AsyncClient(trust_env=False) as client:
            answer = await client.post(tried[2], content=tried[tried.index("-d") + 1])
            broken = await client.post(
                f"{process.url}{CHAT}", content=question("demo-broken"), timeout=20
            )
        assert tried[2] == f"{process.url}{CHAT}"
        assert answer.content.endswith(b"data: [DONE]\n\n")
        assert broken.content.endswith(b"data: [DONE]\n\n")
        assert broken.headers["x-tidegate-attempts"] == "2"
        process.popen.send_signal(signal.SIGTERM)
        assert await process.exit_code(within=10) == 0
        assert "Traceback" not in process.output()


@pytest.mark.e2e
async def test_the_service_serves_the_provider_of_the_environment(tmp_path: Path) -> None:
    """`OPENAI_BASE_URL` and its key are enough; the key is not said."""
    async with running_provider(Script(pace=Pace(chunk_ms=0))) as provider:
        env = {
            **NOWHERE,
            "OPENAI_BASE_URL": provider.base_url,
            "OPENAI_API_KEY": "sk-hidden",
            "OPENAI_MODEL": "healthy",
        }
        command = ("ops", "serve", "--bind", "127.0.0.1:0")
        async with (
            running_process(*command, env=env, cwd=tmp_path) as process,
            httpx.AsyncClient(base_url=process.url, trust_env=False) as client,
        ):
            answer = await client.post(CHAT, content=question("healthy", stream=False))
            assert answer.status_code == 200
            assert provider.requests[0].header("authorization") == "Bearer sk-hidden"
            assert "OPENAI_BASE_URL" in process.output()
            assert "sk-hidden" not in process.output()
            process.popen.send_signal(signal.SIGINT)
            assert await process.exit_code(within=10) == 0


@pytest.mark.e2e
@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="no IPv6 here")
async def test_a_configuration_with_keys_says_where_the_key_goes(tmp_path: Path) -> None:
    """And an IPv6 address stands in brackets."""
    tables = '[[keys]]\nname = "a"\nkey_env = "CALLER"'
    path = write_config(tmp_path, NOBODY, tables=tables)
    with socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        port = probe.getsockname()[1]
    command = ("ops", "serve", "--config", str(path), "--bind", f"[::1]:{port}")
    async with running_process(
        *command, env={"CALLER": "sk-x"}, port=port, host="[::1]"
    ) as process:
        assert f"listening on http://[::1]:{port};" in process.output()
        assert "authorization: Bearer KEY" in process.output()
        assert "sk-x" not in process.output()
        assert json.dumps("small") in process.output()
        process.popen.send_signal(signal.SIGTERM)
        assert await process.exit_code(within=10) == 0
