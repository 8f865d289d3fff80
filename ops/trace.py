"""Trace files: what `record` writes, what people look at, and recordings of others, read as traces.

`.trace` is binary, `.jsonl` for people, either also with `.gz` behind it; a folder stands for what is in it. `.sse`, `.har` and `.json` are
imported (`ops.trace_import`), the last only where it is named itself.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from gate.trace import Record, Trace
from gate.trace_codec import TraceInvalid, count, decode, encode_binary, encode_json, sealed, traces
from ops.trace_import import IMPORT_ENDINGS, import_file

__all__ = ["count_traces", "files_of", "read_traces", "write_traces"]

TRACE_ENDINGS = (".trace", ".jsonl", ".trace.gz", ".jsonl.gz")
IN_FOLDERS = (*TRACE_ENDINGS, ".sse", ".har")  # a JSON file there may be anything


def files_of(paths: Sequence[Path]) -> list[Path]:
    """These files, and those in these folders that are traces, streams or HAR files by their names, in their order; folders in them are left alone."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(each for each in path.iterdir() if each.name.endswith(IN_FOLDERS))
        else:
            found.append(path)
    return found


def read_traces(path: Path) -> Iterator[Trace]:
    """The traces of one file. Raises `TraceInvalid`, behind those that are whole, and `OSError`."""
    if path.name.endswith(TRACE_ENDINGS) or not path.name.endswith(IMPORT_ENDINGS):
        yield from traces(decode(_bytes_of(path)))
    else:
        yield from import_file(path)


def count_traces(path: Path) -> int:
    """How many there may be, found quickly; what can't be read counts for nothing, what has to be imported for one."""
    if path.name.endswith(IMPORT_ENDINGS):
        return 1
    try:
        return count(_bytes_of(path))
    except (TraceInvalid, OSError):
        return 0


def _bytes_of(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix != ".gz":
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError) as error:
        raise TraceInvalid(f"no whole gzip file: {error}") from None


def write_traces(path: Path, found: Iterable[Trace]) -> int:
    """Writes traces in the encoding that the name of the file asks for; how many. Raises `TraceInvalid` for a name that asks for none."""
    if not path.name.endswith(TRACE_ENDINGS):
        raise TraceInvalid(f"{path}: a trace file ends in one of {', '.join(TRACE_ENDINGS)}")
    encode = encode_json if ".jsonl" in path.suffixes else encode_binary
    count, pieces = 0, []
    for trace in found:
        count += 1
        pieces += [encode(record) for record in records_of(trace)]
    data = b"".join(pieces)
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return count


def records_of(trace: Trace) -> list[Record]:
    """All records of a trace, as they stand in a file."""
    end = trace.end
    return sealed([trace.header, *trace.records], dropped=end.dropped, truncated=end.truncated)
