"""The command `tidegate` (also `python -m ops`)."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Final, NoReturn

import trio
import typer

from gate.config_active import inactive
from gate.config_check import decode_config
from gate.config_hints import hints
from gate.config_rules import ConfigInvalid
from gate.trace_codec import TraceInvalid
from ops.bench import run_bench
from ops.bench_machine import DescriptorsMissing
from ops.bench_scenarios import SCENARIOS
from ops.chaos.command import run_chaos
from ops.chaos.listing import fault_lines, scenario_lines
from ops.demo import run_demo
from ops.plugins import load_plugins
from ops.provider import run_provider, running_provider
from ops.record import recording, tables_of
from ops.replay_command import run_replay
from transport.configfile import Loaded, Secrets, find_config, load_config
from transport.serve import ListenFailed, open_listener, serve

USAGE: Final = 2  # exit code: bad usage or bad configuration
INTERRUPTED: Final = 130  # what shells report for SIGINT

cli: Final = typer.Typer(
    name="tidegate",
    help="A stream supervisor for LLM traffic: a caller never sees a broken stream.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"tidegate {version('tidegate')}")
        raise typer.Exit


@cli.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Options that go before a command."""


@cli.command("serve")
def serve_command(
    config: Annotated[Path | None, typer.Option(help="The configuration file (TOML).")] = None,
    bind: Annotated[
        str | None, typer.Option(help="HOST:PORT to listen on, instead of server.bind.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes, instead of server.workers.")
    ] = None,
) -> None:
    """Run the gateway.

    Without --config: $TIDEGATE_CONFIG, else ./tidegate.toml, else the provider at
    $OPENAI_BASE_URL (key: $OPENAI_API_KEY), else an embedded demo provider.
    """
    server: dict[str, object] = {}
    if bind is not None:
        server["bind"] = bind
    if workers is not None:
        server["workers"] = workers
    try:
        plugins = load_plugins()
        loaded = find_config(config, os.environ, Path.cwd(), server=server, plugins=plugins)
        trio.run(_serve, loaded, server, restrict_keyboard_interrupt_to_checkpoints=True)
    except* ConfigInvalid as group:
        _fail(*(str(error) for error in group.exceptions))
    except* ListenFailed as group:
        _fail(*(str(error) for error in group.exceptions))


async def _serve(loaded: Loaded | None, server: Mapping[str, object]) -> None:
    if loaded is not None:
        await _listen(loaded)
        return
    async with running_provider() as demo:
        await _listen(_demo_config(demo.base_url, server))


async def _listen(loaded: Loaded) -> None:
    listener = open_listener(loaded.config.server)
    host, port = listener.getsockname()[:2]
    scheme = "https" if loaded.config.server.tls_cert else "http"
    url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    print(f"tidegate: {loaded.source}")
    print(f"tidegate: listening on {url}; try:\n\n{_curl(url, loaded)}\n", flush=True)
    await serve(loaded, listener)


def _curl(url: str, loaded: Loaded) -> str:
    model = loaded.config.models[0].alias if loaded.config.models else "MODEL"
    key = " -H 'authorization: Bearer KEY'" if loaded.config.keys else ""
    body = f'{{"model": "{model}", "stream": true, "messages": [{{"role": "user", "content": "Hello"}}]}}'
    return f"  curl -N {url}/v1/chat/completions{key} -H 'content-type: application/json' \\\n    -d '{body}'"


def _demo_config(base_url: str, server: Mapping[str, object]) -> Loaded:
    """Two targets on the embedded provider: one that breaks its first streams, and a healthy one to recover with."""
    raw: dict[str, object] = {
        "server": dict(server),
        "providers": [{"name": "demo", "base_url": base_url}],
        "models": [
            {"alias": "demo", "targets": [{"provider": "demo", "model": "healthy"}]},
            {
                "alias": "demo-broken",
                "route": "held",
                "targets": [
                    {"provider": "demo", "model": "cut:12", "priority": 0},
                    {"provider": "demo", "model": "healthy", "priority": 1},
                ],
            },
        ],
        "routes": {"held": {"hold": {"mode": "buffered"}}},
    }
    secrets = Secrets(keys={}, providers={}, filters={}, admin="")
    source = (
        "no configuration found: using the embedded demo provider (models `demo` and `demo-broken`)"
    )
    return Loaded(decode_config(raw), raw, secrets, source=source)


@cli.command("record")
def record_command(
    folder: Annotated[
        Path, typer.Option("--dir", help="Where the traces go, instead of observe.record_dir.")
    ] = Path("traces"),
    config: Annotated[Path | None, typer.Option(help="The configuration file (TOML).")] = None,
    bind: Annotated[
        str | None, typer.Option(help="HOST:PORT to listen on, instead of server.bind.")
    ] = None,
) -> None:
    """Run the gateway as `serve` does, and record every exchange with its full content.

    Without --config the same configuration is looked for as by `serve`.
    """
    server: dict[str, object] = {} if bind is None else {"bind": bind}
    try:
        plugins = load_plugins()
        loaded = find_config(config, os.environ, Path.cwd(), server=server, plugins=plugins)
        print(f"tidegate: recording full content, prompts and answers included, to {folder}")
        trio.run(_record, loaded, server, folder, restrict_keyboard_interrupt_to_checkpoints=True)
    except* ConfigInvalid as group:
        _fail(*(str(error) for error in group.exceptions))
    except* ListenFailed as group:
        _fail(*(str(error) for error in group.exceptions))


async def _record(loaded: Loaded | None, server: Mapping[str, object], folder: Path) -> None:
    if loaded is not None:
        await _listen(recording(loaded, folder))
        return
    async with running_provider() as demo:
        await _listen(recording(_demo_config(demo.base_url, server), folder))


@cli.command("replay")
def replay_command(
    traces: Annotated[
        list[Path],
        typer.Argument(
            help="Traces (.trace, .jsonl, also with .gz), captures (.sse, .har, .json), or folders of them; a .json in a folder is not read."
        ),
    ],
    config: Annotated[
        Path | None,
        typer.Option(help="What would have been under this configuration; without it: verify."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the same facts as JSON.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a report with drawings here.")] = None,
    save: Annotated[
        Path | None,
        typer.Option(help="Write all that was read here: *.trace or *.jsonl, with .gz too."),
    ] = None,
) -> None:
    """Replay recorded exchanges through the same actors, on a virtual clock.

    Event streams (.sse, with the request in a .json of the same name), HAR files and VCR cassettes in JSON are imported as traces with made-up times.

    Exits with 1 if an output or a decision differs from the recording, with 2 if a file or a trace in it can't be read.
    """
    try:
        tables = None if config is None else tables_of(config)
        code = run_replay(traces, tables=tables, as_text=not as_json, report=html, save=save)
    except (ConfigInvalid, TraceInvalid, OSError) as error:
        _fail(str(error))
        return
    raise typer.Exit(code)


@cli.command("check-config")
def check_config(
    file: Annotated[Path, typer.Argument(help="The configuration file (TOML).")],
) -> None:
    """Validate a configuration file offline; print every error with its path."""
    try:
        loaded = load_config(file, os.environ, plugins=load_plugins())
    except ConfigInvalid as error:
        _fail(str(error))
        return
    paths = inactive(loaded.raw)
    if paths:
        print("not active yet: " + ", ".join(paths))
    for each in hints(loaded.config):
        print(f"hint: {each}")
    print(f"{file}: ok")


@cli.command("provider")
def provider_command(
    bind: Annotated[str, typer.Option(help="HOST:PORT to listen on.")] = "127.0.0.1:8000",
    script: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="A fault of the catalogue by its name, or a file of answers (TOML or JSON; ./NAME where a fault is called so).",
        ),
    ] = None,
    names: Annotated[
        bool, typer.Option("--list", help="List the faults of the catalogue, and exit.")
    ] = False,
) -> None:
    """Run the scriptable loopback provider: healthy, or broken as the model's name or a script says."""
    if names:
        print("\n".join(fault_lines()))
        return
    trio.run(run_provider, bind, script)


@cli.command("demo")
def demo_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print the same facts as JSON.")] = False,
) -> None:
    """Send five requests to a provider that breaks, without and with the gate, and show what a caller gets.

    Exits with 1 if an answer did not come whole through the gate.
    """
    try:
        code = trio.run(run_demo, as_json, restrict_keyboard_interrupt_to_checkpoints=True)
    except* KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    raise typer.Exit(code)


@cli.command("bench")
def bench_command(
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"A scenario, may be given again: {', '.join(SCENARIOS)}."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="About half a minute.")] = False,
    streams: Annotated[
        int | None, typer.Option(min=1, help="Open at once in streams and memory.")
    ] = None,
    json: Annotated[str, typer.Option(help="A file for the same facts; - for stdout.")] = "",
) -> None:
    """Measure the gateway on loopback beside a direct connection and two byte copiers; at most three minutes.

    Exits with 1 if a stream came wrong; no time that was measured makes it fail.
    """
    unknown = [name for name in only or [] if name not in SCENARIOS]
    if unknown:
        _fail(f"no such scenario: {', '.join(unknown)} (there are {', '.join(SCENARIOS)})")
    # Whoever ends us ends what we have started, too.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        code = run_bench(only or [], quick=quick, streams=streams, json=json)
    except DescriptorsMissing as error:
        _fail(f"{error}; --streams N asks for fewer")
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGTERM, before)
    raise typer.Exit(code)


@cli.command("chaos")
def chaos_command(  # noqa: PLR0917 - options, which are passed by name
    scenarios: Annotated[
        list[str] | None, typer.Argument(metavar="[SCENARIO...]", help="All, if none is named.")
    ] = None,
    schedule: Annotated[
        str | None, typer.Option(help="fifo, reverse, or sN: one order of tasks.")
    ] = None,
    cancel: Annotated[
        list[str] | None,
        typer.Option(
            help="WHO:K: cancel req, caller, drain or an actor at point K; from ring 2 on also reset, half (the caller's connection), provider and stop (SIGTERM). In ring 3 K is in tenths of a millisecond."
        ),
    ] = None,
    raised: Annotated[
        list[str] | None, typer.Option("--raise", help="WHO:K: an exception, or a port's failure.")
    ] = None,
    search: Annotated[
        str,
        typer.Option(
            help="quick: a third of all single faults, one schedule; full: all, half of them under two more schedules, and pairs; deep. With --schedule all single faults, under that one."
        ),
    ] = "quick",
    jobs: Annotated[int, typer.Option(help="Processes; 0: one per core.")] = 0,
    corpus: Annotated[
        Path | None, typer.Option(help="A file of case lines that run first.")
    ] = None,
    first: Annotated[bool, typer.Option("--first", help="Stop at the first failure.")] = False,
    sites: Annotated[
        bool,
        typer.Option(
            "--sites",
            help="Say which await sites of the actors were hit; where no scenario is named, exit with 1 if too few were.",
        ),
    ] = False,
    ring: Annotated[
        int | None,
        typer.Option(
            help="1: exchanges over played ports; 2: the whole program in memory; 3: the service on sockets. Left out: all, or 1 where scenarios are named."
        ),
    ] = None,
    trace: Annotated[
        list[Path] | None,
        typer.Option(help="A trace file whose exchanges are scenarios, too; may be given again."),
    ] = None,
    names: Annotated[
        bool, typer.Option("--list", help="List the scenarios and their rings, and exit.")
    ] = False,
) -> None:
    """Strike whole exchanges at every step of the scheduler, and check what must hold after each run.

    Exits with 1 on a broken invariant, and prints the command that repeats the case; also where a case that is named, here or in the corpus, strikes nothing.
    """
    if names:
        print("\n".join(scenario_lines()))
        return
    raise typer.Exit(
        run_chaos(
            scenarios or [],
            schedule=schedule,
            cancel=cancel or [],
            raised=raised or [],
            level=search,
            jobs=jobs,
            corpus=corpus,
            stop=first,
            sites=sites,
            ring=ring,
            traces=trace or [],
        )
    )


def _fail(*messages: str) -> NoReturn:
    for message in messages:
        print(f"tidegate: {message}", file=sys.stderr)
    raise typer.Exit(USAGE)


def main() -> None:
    """The entry point of the command."""
    cli()


if __name__ == "__main__":
    main()
