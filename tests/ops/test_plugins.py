"""Filters from other packages: what is loaded, what is refused, and one that is installed like a stranger's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Final

import httpx
import pytest

from gate.config_rules import ConfigInvalid
from ops.plugins import GROUP, load_plugins
from ops.provider import running_provider
from ops.provider_script import Pace, Script
from tests.plugins import WordPlugin
from tests.transport.edge import (
    CHAT,
    ROOT,
    Process,
    code_of,
    eventually,
    question,
    running_process,
    write_config,
)

EXAMPLE: Final = ROOT / "ops/examples/banned_words"
TABLE: Final = """
[filters.manners]
kind = "banned-words"
words = ["{word}"]
[routes.default]
filters = ["empty", "manners"]
"""


def point(name: str, value: str) -> EntryPoint:
    """An entry point as a package would declare it."""
    return EntryPoint(name, value, GROUP)


def refused(*points: EntryPoint) -> list[str]:
    """Why these can't be used, without the paths."""
    with pytest.raises(ConfigInvalid) as caught:
        load_plugins(points)
    for problem in caught.value.problems:
        assert problem.path.startswith(f"{GROUP}: '")
    return [problem.message for problem in caught.value.problems]


def test_a_plugin_is_known_by_the_name_of_its_entry_point() -> None:
    """Several of them, each under its own."""
    word = "tests.plugins:WordPlugin"
    assert load_plugins([point("a-word", word), point("b", word)]) == {
        "a-word": WordPlugin,
        "b": WordPlugin,
    }
    assert load_plugins([]) == {}


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("A Word", "tests.plugins:WordPlugin", "the name must be 1 to 128 characters"),
        ("patterns", "tests.plugins:WordPlugin", "is the name of a built-in kind"),
        ("a", "tests.nowhere:X", "can't be loaded: ModuleNotFoundError: No module named"),
        ("a", "tests.plugins:Nobody", "can't be loaded: AttributeError: "),
        ("a", "tests.plugins:table", "is no class derived from gate.filters.plugin.FilterPlugin"),
        ("a", "tests.plugins:Said", "is no class derived from gate.filters.plugin.FilterPlugin"),
        ("a", "tests.plugins:Unfinished", "leaves out observe"),
        ("a", "tests.plugins:Loose", "its options_type is no struct derived from gate.config"),
        ("a", "tests.plugins:Overlapping", "its option failure is a key of every filter"),
    ],
)
def test_one_that_can_not_be_used_is_an_error_of_its_own(
    name: str, value: str, reason: str
) -> None:
    """A filter that is missing would be missed too late."""
    sound = point("sound", "tests.plugins:WordPlugin")
    [message] = refused(sound, point(name, value))
    assert message.startswith(reason)


def test_a_kind_belongs_to_one_package() -> None:
    """Which of two would judge?"""
    twice = [point("a", "tests.plugins:WordPlugin"), point("a", "tests.plugins:Fixed")]
    assert refused(*twice) == ["another package has a plug-in of this name"]


# --- the example, installed ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of a process beside whose packages the example is installed, as a package, from its folder alone."""
    folder = tmp_path_factory.mktemp("site")
    offline = ["--no-index", "--no-build-isolation", "--no-deps", "--disable-pip-version-check"]
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        *offline,
        "--target",
        str(folder),
        str(EXAMPLE),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)  # noqa: S603 - our own folder
    assert (folder / "tidegate_banned_words.py").is_file()
    return {"PYTHONPATH": f"{ROOT}:{folder}"}


def check_config(path: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """`tidegate check-config` as a process of its own."""
    command = [sys.executable, "-m", "ops", "check-config", str(path)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603 - ours


@pytest.mark.e2e
def test_the_example_s_kind_can_be_configured_where_it_is_installed(
    tmp_path: Path, installed: Mapping[str, str]
) -> None:
    """With its options, which it checks."""
    path = write_config(tmp_path, "http://127.0.0.1:9/v1", tables=TABLE.format(word="drat"))
    good = check_config(path, installed)
    assert (good.returncode, good.stdout) == (0, f"{path}: ok\n")
    path = write_config(tmp_path, "http://127.0.0.1:9/v1", tables=TABLE.format(word="d rat"))
    wrong = check_config(path, installed)
    assert wrong.returncode == 2
    assert "filters.manners: words: at least one, and each a single word" in wrong.stderr


def violations(process: Process) -> list[tuple[str, str]]:
    """The codes and filters that its log tells of so far."""
    told = [each for each in process.log() if each["event"] == "violation"]
    return [(each["code"], each["filter"]) for each in told]


@pytest.mark.e2e
async def test_the_example_judges_what_the_gateway_serves(
    tmp_path: Path, installed: Mapping[str, str]
) -> None:
    """A banned word never leaves, streamed or not; an answer without one is whole."""
    asked = [{"role": "user", "content": "Is the walrus in?"}]
    async with running_provider(Script(pace=Pace(chunk_ms=0))) as provider:
        path = write_config(tmp_path, provider.base_url, tables=TABLE.format(word="Walrus"))
        command = ("ops", "serve", "--config", str(path), "--bind", "127.0.0.1:0")
        async with (
            running_process(*command, env=installed, cwd=tmp_path) as process,
            httpx.AsyncClient(base_url=process.url, trust_env=False, timeout=20) as client,
        ):
            whole = await client.post(CHAT, content=question())
            denied = await client.post(CHAT, content=question(stream=False, messages=asked))
            stream = await client.post(CHAT, content=question(messages=asked))
            await eventually(lambda: len(violations(process)) == 2, within=10)
            judged = violations(process)
    assert whole.content.endswith(b"data: [DONE]\n\n")
    assert (denied.status_code, code_of(denied.content)) == (502, "banned_word")
    assert b"banned_word" in stream.content
    assert b"walrus" not in stream.content
    assert b"[DONE]" not in stream.content
    assert judged == [("banned_word", "manners")] * 2
