"""The rules of the house that no linter knows, each held over the whole tree and proved able to fail.

A rule takes the modules of a tree and returns its findings, one `path:line: what` each.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import subprocess
import tokenize
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = ("gate", "actors", "transport", "ops")

MODULE_LINES_MAX: Final = 400
TEST_MODULE_LINES_MAX: Final = 600
FUNCTION_LINES_MAX: Final = 70
SHIELD_COMMENT_LINES: Final = 6

# Each with the reason why it has no test file of its own.
UNMIRRORED: Final = frozenset(
    {
        "actors/ports.py",  # protocols only: whoever implements them is tested
        "ops/chaos/scenario.py",  # values only, tested where they are played
        "gate/events.py",  # vocabulary only: values without behaviour, tested where they are made
        "ops/__main__.py",  # the command line is tested through what it starts
    }
)
TEST_HOMES: Final = {"ops/chaos": "chaos"}
# Started from outside, so nothing needs to import them.
ENTRY_POINTS: Final = frozenset(
    {
        "ops/__main__.py",  # the console command and `python -m ops`
        "ops/examples/banned_words/tidegate_banned_words.py",  # a package of its own
        "transport/asgi.py",  # `hypercorn -k trio transport.asgi:app`
        "ops/bench_asyncio.py",  # processes of their own that the bench measures
        "ops/bench_trio.py",
    }
)
# The one program that is there to be on another event loop: what trio is measured beside.
ASYNCIO_HOMES: Final = frozenset({"ops/bench_asyncio.py"})
# Every lifetime of the running gateway can be read in these files.
NURSERY_HOMES: Final = frozenset(
    {
        "actors/exchange.py",  # the two nurseries of an exchange
        "actors/evaluator.py",  # filters that await
        "transport/asgi.py",  # the lifespan
        "transport/serve.py",  # the service beside its server
        "transport/supervisor.py",  # the workers
    }
)

_UNFINISHED: Final = re.compile(r"\b(?:TODO|FIXME|XXX)\b")
_NUMBERED: Final = re.compile(r"\bTODO\b.*#\d+")
_WORKPLACE: Final = re.compile(r"/wor[k]/|\.lib[r]ary\b")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Module:
    """One Python file: `path` from the root, with slashes; comments by line number."""

    path: str
    text: str
    tree: ast.Module
    comments: Mapping[int, str]

    @property
    def package(self) -> str:
        """The top-level folder."""
        return PurePosixPath(self.path).parts[0]

    @property
    def name(self) -> str:
        """The dotted name that an import statement uses."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def at(self, line: int, what: str) -> str:
        """A finding at a line of this module."""
        return f"{self.path}:{line}: {what}"


Rule = Callable[[Sequence[Module]], list[str]]


def parse(path: str, text: str) -> Module:
    """Read one file; SyntaxError where it is no Python."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = {each.start[0]: each.string for each in tokens if each.type == tokenize.COMMENT}
    return Module(path, text, ast.parse(text, path), comments)


@functools.cache
def walked(tree: ast.Module) -> Sequence[ast.AST]:
    """Every node, once for all the rules."""
    return tuple(ast.walk(tree))


@pytest.fixture(scope="module")
def house() -> Sequence[Module]:
    """Every Python file of the packages and of the tests."""
    files = (file for folder in (*PACKAGES, "tests") for file in (ROOT / folder).rglob("*.py"))
    return [parse(file.relative_to(ROOT).as_posix(), file.read_text()) for file in sorted(files)]


# --- the rules -----------------------------------------------------------------------------------


def unmirrored_modules(modules: Sequence[Module]) -> list[str]:
    """`gate/sse.py` is tested in `tests/gate/test_sse.py`; an `__init__` is a docstring or is tested. The tests of `ops/chaos` stand in `tests/chaos`, with its mutants and its corpus.

    A part that was split off its module (`config_rules` of `config`) may share the whole's test file.
    """
    paths = {each.path for each in modules}
    found = []
    for each in _sources(modules):
        own = PurePosixPath(each.path)
        if each.path in UNMIRRORED or (own.name == "__init__.py" and len(each.tree.body) <= 1):
            continue
        stems = {own.stem}
        whole = own.stem.split("_")[0]
        if f"{own.parent}/{whole}.py" in paths:
            stems.add(whole)
        home = TEST_HOMES.get(str(own.parent), own.parent)
        if paths.isdisjoint(f"tests/{home}/test_{stem}.py" for stem in stems):
            found.append(each.at(1, f"tests/{home}/test_{own.stem}.py is missing"))
    return found


def stray_nurseries(modules: Sequence[Module]) -> list[str]:
    """A nursery opens in a file that is listed for it, or in ops and tests, one per function."""
    found = []
    for each in modules:
        free = each.package in {"ops", "tests"}
        if each.path in NURSERY_HOMES:
            continue
        for scope in _scopes(each.tree):
            lines = sorted(node.lineno for node in _own(scope) if _names(node, "open_nursery"))
            what = "a second nursery in one function" if free else "no nursery belongs here"
            found += [each.at(line, what) for line in lines[1 if free else 0 :]]
    return found


def channel_ends_left_asynchronously(modules: Sequence[Module]) -> list[str]:
    """`async with end:` loses a real error when its scope is cancelled; `with end:` does not."""
    found = []
    for each in modules:
        ends = _channel_ends(each.tree)
        for node in walked(each.tree):
            if isinstance(node, ast.AsyncWith):
                for item in node.items:
                    expression = ast.unparse(item.context_expr)
                    if expression in ends or expression.endswith(".clone()"):
                        found.append(each.at(node.lineno, f"write `with {expression}:`"))
    return found


def long_code(modules: Sequence[Module]) -> list[str]:
    """A module and a function end before a reader tires."""
    found = []
    for each in modules:
        lines = len(each.text.splitlines())
        limit = TEST_MODULE_LINES_MAX if each.package == "tests" else MODULE_LINES_MAX
        if lines > limit:
            found.append(each.at(lines, f"{lines} lines, {limit} at most"))
        for function in walked(each.tree):
            if isinstance(function, Function):
                long = (function.end_lineno or function.lineno) - function.lineno + 1
                if long > FUNCTION_LINES_MAX:
                    what = f"{function.name} has {long} lines, {FUNCTION_LINES_MAX} at most"
                    found.append(each.at(function.lineno, what))
    return found


def unbounded_channels(modules: Sequence[Module]) -> list[str]:
    """A channel's capacity is a number that somebody chose."""
    return [
        each.at(node.lineno, "a channel without a bound")
        for each in modules
        for node in walked(each.tree)
        if isinstance(node, ast.Call) and _opens_channel(node)
        if any(_is_infinite(part) for part in ast.walk(node))
    ]


def unnumbered_todos(modules: Sequence[Module]) -> list[str]:
    """What is left for later stands in an issue, and the comment names it: `TODO #12`."""
    return [
        each.at(line, f"no issue number: {comment}")
        for each in modules
        for line, comment in each.comments.items()
        if _UNFINISHED.search(comment) and not _NUMBERED.search(comment)
    ]


def unexplained_shields(modules: Sequence[Module]) -> list[str]:
    """Whoever shields says what ends it: a comment "Bounded by ..." close above."""
    found = []
    for each in modules:
        for line in _shields(each.tree):
            above = range(line - SHIELD_COMMENT_LINES, line + 1)
            if not any("Bounded by" in each.comments.get(near, "") for near in above):
                found.append(each.at(line, 'a shield without a comment "Bounded by ..."'))
    return found


def dead_modules(modules: Sequence[Module]) -> list[str]:
    """What only its own test imports is not part of the program."""
    imported = {
        name for each in _sources(modules) for _, name in _imports(each.tree) if name != each.name
    }
    return [
        each.at(1, "nothing imports this module")
        for each in _sources(modules)
        if not each.path.endswith("/__init__.py")
        and each.path not in ENTRY_POINTS
        and each.name not in imported
    ]


def httpx_outside_its_home(modules: Sequence[Module]) -> list[str]:
    """Only the modules that the import contract lists know the HTTP client; tests are free."""
    homes = _httpx_homes()
    return [
        each.at(line, "httpx is not for this module")
        for each in _sources(modules)
        if each.name not in homes
        for line in _lines_importing(each, "httpx")
    ]


def asyncio_imports(modules: Sequence[Module]) -> list[str]:
    """One event loop: trio, in the tests too."""
    return [
        each.at(line, "this service is trio-only")
        for each in modules
        if each.path not in ASYNCIO_HOMES
        for line in _lines_importing(each, "asyncio")
    ]


def workplace_names(texts: Mapping[str, str]) -> list[str]:
    """No file knows the machine that it was written on. `texts`: path to content."""
    return [
        f"{path}:{number}: {line.strip()}"
        for path, text in texts.items()
        for number, line in enumerate(text.splitlines(), start=1)
        if _WORKPLACE.search(line)
    ]


# --- what the rules are made of ------------------------------------------------------------------


def _sources(modules: Sequence[Module]) -> list[Module]:
    """The program without its tests."""
    return [each for each in modules if each.package in PACKAGES]


def _scopes(tree: ast.Module) -> Iterator[ast.AST]:
    """The module and each function in it, nested ones too."""
    yield tree
    yield from (node for node in walked(tree) if isinstance(node, Function))


def _own(scope: ast.AST) -> Iterator[ast.expr | ast.alias]:
    """The expressions and imported names of a scope, without those of functions inside it."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, ast.expr | ast.alias):
            yield child
        if not isinstance(child, Function):
            yield from _own(child)


def _names(node: ast.AST, name: str) -> bool:
    """Whether this very node says `name`, `x.name` or imports it."""
    match node:
        case ast.Attribute(attr=said) | ast.Name(id=said) | ast.alias(name=said):
            return said == name
        case _:
            return False


def _channel_ends(tree: ast.Module) -> set[str]:
    """Expressions that are channel ends by annotation, by creation or by assignment from one."""
    ends: set[str] = set()
    for node in walked(tree):
        match node:
            case ast.arg(arg=name, annotation=ast.expr() as annotation):
                targets = {name}
            case ast.AnnAssign(annotation=annotation):
                # A field is declared by its name and used through `self`.
                name = ast.unparse(node.target)
                targets = {name, f"self.{name}"}
            case _:
                continue
        if _is_channel_type(annotation):
            ends |= targets
    for node in walked(tree):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=pair)], value=ast.Call() as call):
                if _opens_channel(call):
                    ends |= {ast.unparse(end) for end in pair}
            case _:
                continue
    for node in walked(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.value) in ends:
            ends |= {ast.unparse(target) for target in node.targets}
    return ends


def _is_channel_type(annotation: ast.expr) -> bool:
    """`trio.MemorySendChannel[Event]`, with or without its parts, or None as well."""
    match annotation:
        case ast.BinOp(left=left, right=right):
            return _is_channel_type(left) or _is_channel_type(right)
        case ast.Subscript(value=generic):
            return _is_channel_type(generic)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name.endswith(("SendChannel", "ReceiveChannel"))
        case _:
            return False


def _opens_channel(call: ast.Call) -> bool:
    """A call of `open_memory_channel`, typed by a subscript or not."""
    function = call.func.value if isinstance(call.func, ast.Subscript) else call.func
    return _names(function, "open_memory_channel")


def _is_infinite(node: ast.AST) -> bool:
    """`math.inf`, `inf`, or the text that `float` reads as such."""
    match node:
        case ast.Constant(value=str() as text):
            return text.lower().lstrip("+") in {"inf", "infinity"}
        case _:
            return _names(node, "inf")


def _shields(tree: ast.Module) -> Iterator[int]:
    """Lines that say `shield=True`, as an argument or as an assignment."""
    for node in walked(tree):
        match node:
            case ast.keyword(arg="shield", value=ast.Constant(value=True) as true):
                yield true.lineno
            case ast.Assign(
                targets=[ast.Attribute(attr="shield")], value=ast.Constant(value=True) as true
            ):
                yield true.lineno
            case _:
                continue


def _imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of everything that is imported; `from a import b` gives `a` and `a.b`."""
    for node in walked(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, each.name) for each in names)
            case ast.ImportFrom(module=str() as origin, names=names):
                yield node.lineno, origin
                yield from ((node.lineno, f"{origin}.{each.name}") for each in names)
            case _:
                continue


def _lines_importing(module: Module, library: str) -> list[int]:
    """Lines that import a library or a part of it, each once."""
    return sorted({line for line, name in _imports(module.tree) if name.split(".")[0] == library})


def _httpx_homes() -> Collection[str]:
    """Modules that the import contract exempts, so that there is one list of them."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    exempt = (
        edge.split(" -> ")
        for contract in tools["importlinter"]["contracts"]
        for edge in contract.get("ignore_imports", ())
    )
    return {importer for importer, imported in exempt if imported == "httpx"}


def _tree_texts() -> dict[str, str]:
    """Every file that a commit would hold, decoded as far as it is text."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    files = [path for path in listed.split("\0") if path and (ROOT / path).is_file()]
    return {path: (ROOT / path).read_text(errors="replace") for path in files}


def _assert_none(found: Sequence[str]) -> None:
    if found:
        pytest.fail("\n".join(found), pytrace=False)


# --- the house as it stands ----------------------------------------------------------------------


def test_every_module_has_a_test_file_of_its_own_name(house: Sequence[Module]) -> None:
    """Whoever changes a module knows where its tests are."""
    _assert_none(unmirrored_modules(house))


def test_nurseries_open_only_where_lifetimes_are_reviewed(house: Sequence[Module]) -> None:
    """The list of files is the concurrency review."""
    _assert_none(stray_nurseries(house))


def test_channel_ends_are_closed_without_a_checkpoint(house: Sequence[Module]) -> None:
    """The end's own `with` is the synchronous one."""
    _assert_none(channel_ends_left_asynchronously(house))


def test_modules_and_functions_stay_short(house: Sequence[Module]) -> None:
    """One screen of thought per function, one subject per module."""
    _assert_none(long_code(house))


def test_every_channel_has_a_bound(house: Sequence[Module]) -> None:
    """Nothing queues without end."""
    _assert_none(unbounded_channels(house))


def test_what_is_left_undone_has_an_issue_number(house: Sequence[Module]) -> None:
    """A comment is not a tracker."""
    _assert_none(unnumbered_todos(house))


def test_every_shield_says_what_bounds_it(house: Sequence[Module]) -> None:
    """A shield that nothing ends would hang the shutdown."""
    _assert_none(unexplained_shields(house))


def test_every_module_is_part_of_the_program(house: Sequence[Module]) -> None:
    """Code that nothing runs is not kept for later."""
    _assert_none(dead_modules(house))


def test_the_http_client_stays_in_its_home(house: Sequence[Module]) -> None:
    """It can be exchanged in a few files."""
    _assert_none(httpx_outside_its_home(house))


def test_nothing_uses_another_event_loop(house: Sequence[Module]) -> None:
    """Trio alone decides about cancellation."""
    _assert_none(asyncio_imports(house))


def test_no_file_names_the_place_it_was_written_in() -> None:
    """A clone works anywhere."""
    texts = _tree_texts()
    assert {"pyproject.toml", "tests/test_house.py"} <= texts.keys()
    _assert_none(workplace_names(texts))


# --- each rule can fail --------------------------------------------------------------------------

LONG_FUNCTION: Final = "def f():\n" + "    pass\n" * FUNCTION_LINES_MAX
TWO_NURSERIES: Final = (
    "async def f():\n"
    "    async with trio.open_nursery():\n"
    "        async with trio.open_nursery():\n"
    "            pass\n"
)
FIELD: Final = (
    "class A:\n"
    "    out: SendChannel[int] | None\n"
    "    async def f(self):\n"
    "        async with self.out:\n"
    "            pass\n"
)
FAR_COMMENT: Final = "# Bounded by n.\n" + "\n" * SHIELD_COMMENT_LINES + "scope.shield = True\n"

BROKEN: Final[Sequence[tuple[Rule, Mapping[str, str], list[str]]]] = [
    (unmirrored_modules, {"gate/sse.py": "", "tests/gate/test_see.py": ""}, ["gate/sse.py:1"]),
    (unmirrored_modules, {"gate/filters/empty.py": ""}, ["gate/filters/empty.py:1"]),
    (unmirrored_modules, {"gate/a_b.py": "", "tests/gate/test_a.py": ""}, ["gate/a_b.py:1"]),
    (unmirrored_modules, {"gate/__init__.py": "A = 1\nB = 2\n"}, ["gate/__init__.py:1"]),
    (stray_nurseries, {"actors/sink.py": TWO_NURSERIES}, ["actors/sink.py:2", "actors/sink.py:3"]),
    (stray_nurseries, {"gate/a.py": "from trio import open_nursery\n"}, ["gate/a.py:1"]),
    (stray_nurseries, {"ops/bench.py": TWO_NURSERIES}, ["ops/bench.py:3"]),
    (
        channel_ends_left_asynchronously,
        {
            "actors/a.py": "async def f(out: trio.MemorySendChannel[int]):\n    async with out: pass\n"
        },
        ["actors/a.py:2"],
    ),
    (
        channel_ends_left_asynchronously,
        {
            "tests/a.py": "async def f():\n    s, r = open_memory_channel[int](0)\n    async with r: 1\n"
        },
        ["tests/a.py:3"],
    ),
    (
        channel_ends_left_asynchronously,
        {"actors/a.py": "async def f():\n    async with end.clone() as mine: pass\n"},
        ["actors/a.py:2"],
    ),
    (channel_ends_left_asynchronously, {"actors/a.py": FIELD}, ["actors/a.py:4"]),
    (long_code, {"gate/a.py": "\n" * (MODULE_LINES_MAX + 1)}, ["gate/a.py:401"]),
    (long_code, {"tests/a.py": "\n" * (TEST_MODULE_LINES_MAX + 1)}, ["tests/a.py:601"]),
    (long_code, {"tests/a.py": "\n" + LONG_FUNCTION}, ["tests/a.py:2"]),
    (unbounded_channels, {"gate/a.py": "open_memory_channel(inf)"}, ["gate/a.py:1"]),
    (unbounded_channels, {"ops/a.py": "\ntrio.open_memory_channel[int](math.inf)"}, ["ops/a.py:2"]),
    (unbounded_channels, {"ops/a.py": "open_memory_channel(float('inf'))"}, ["ops/a.py:1"]),
    (unnumbered_todos, {"gate/a.py": "a = 1\nb = 2  # TODO: tidy, see 12\n"}, ["gate/a.py:2"]),
    (unnumbered_todos, {"gate/a.py": "# FIXME #12\n"}, ["gate/a.py:1"]),
    (unexplained_shields, {"gate/a.py": "f(1,\n  shield=True)\n"}, ["gate/a.py:2"]),
    (unexplained_shields, {"gate/a.py": FAR_COMMENT}, ["gate/a.py:8"]),
    (dead_modules, {"gate/a.py": "import gate.a", "tests/t.py": "import gate.a"}, ["gate/a.py:1"]),
    (httpx_outside_its_home, {"ops/a.py": "import os\nimport httpx as x\n"}, ["ops/a.py:2"]),
    (httpx_outside_its_home, {"transport/a.py": "from httpx import URL"}, ["transport/a.py:1"]),
    (asyncio_imports, {"tests/a.py": "def f():\n    import asyncio\n"}, ["tests/a.py:2"]),
    (asyncio_imports, {"ops/a.py": "from asyncio.events import new_event_loop"}, ["ops/a.py:1"]),
]

SOUND: Final[Sequence[tuple[Rule, Mapping[str, str]]]] = [
    (unmirrored_modules, {"gate/sse.py": "", "tests/gate/test_sse.py": ""}),
    (unmirrored_modules, {"gate/a_b.py": "", "gate/a.py": "", "tests/gate/test_a.py": ""}),
    (unmirrored_modules, {"gate/__init__.py": '"""Pure."""', "ops/__main__.py": ""}),
    (stray_nurseries, {"actors/exchange.py": TWO_NURSERIES}),
    (stray_nurseries, {"ops/a.py": "def f(): open_nursery()\ndef g(): open_nursery()\n"}),
    (
        channel_ends_left_asynchronously,
        {
            "actors/a.py": "async def f(out: SendChannel[int]):\n    with out:\n        async with x: 1\n"
        },
    ),
    (long_code, {"gate/a.py": "\n" * MODULE_LINES_MAX, "tests/a.py": LONG_FUNCTION[:-9]}),
    (unbounded_channels, {"gate/a.py": "open_memory_channel[int](1)\nmove_on_after(inf)\n"}),
    (unnumbered_todos, {"gate/a.py": "a = 'TODO'  # TODO #12: tidy\n"}),
    (unexplained_shields, {"gate/a.py": "# Bounded by n.\nf(shield=True)\ng(shield=False)\n"}),
    (dead_modules, {"gate/a.py": "", "ops/__main__.py": "def main():\n    from gate import a\n"}),
    (
        httpx_outside_its_home,
        {"transport/provider.py": "import httpx", "tests/a.py": "import httpx"},
    ),
    (asyncio_imports, {"gate/a.py": "import trio"}),
]


@pytest.mark.parametrize(("rule", "files", "places"), BROKEN)
def test_a_rule_finds_the_line_that_breaks_it(
    rule: Rule, files: Mapping[str, str], places: list[str]
) -> None:
    """Each finding begins with its path and line."""
    found = rule([parse(path, text) for path, text in files.items()])
    assert [":".join(each.split(":")[:2]) for each in found] == places


@pytest.mark.parametrize(("rule", "files"), SOUND)
def test_a_rule_leaves_sound_code_alone(rule: Rule, files: Mapping[str, str]) -> None:
    """What the rule asks for passes it."""
    assert rule([parse(path, text) for path, text in files.items()]) == []


def test_a_path_of_the_workplace_is_found_in_any_file() -> None:
    """Documents and scripts count as much as code."""
    texts = {"README.md": "a\nsee /w" + "ork/notes\n", "ops/run.sh": "network/workers/librarian\n"}
    assert workplace_names(texts) == ["README.md:2: see /w" + "ork/notes"]


def test_every_import_contract_still_lets_a_provider_module_use_the_client() -> None:
    """The list that the rule reads is not empty for a reason as dull as a renamed key."""
    assert "transport.http1" in _httpx_homes()
