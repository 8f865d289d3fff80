"""The command `tidegate record`: the gateway as it is served, with a recorder that keeps everything; and configurations as traces know them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from gate.config_check import decode_config
from gate.config_rules import ConfigInvalid, Problem
from ops.plugins import load_plugins
from transport.configfile import Loaded

__all__ = ["recording", "tables_of"]


def recording(loaded: Loaded, folder: Path) -> Loaded:
    """The same configuration, but every exchange is recorded to `folder`, with full content."""
    observe = msgspec.structs.replace(
        loaded.config.observe,
        record_dir=str(folder),
        record_content="full",
        sample_success=1.0,
        sample_failure=1.0,
    )
    config = msgspec.structs.replace(loaded.config, observe=observe)
    tables = loaded.raw.get("observe", {})
    told = {
        name: getattr(observe, name)
        for name in ("record_dir", "record_content", "sample_success", "sample_failure")
    }
    raw = (
        {**loaded.raw, "observe": {**tables, **told}} if isinstance(tables, Mapping) else loaded.raw
    )
    return replace(loaded, config=config, raw=raw)


def tables_of(path: Path) -> Mapping[str, Any]:
    """The tables of a configuration file that is asked about. No secret is needed, because nobody is connected to. Raises `ConfigInvalid`."""
    try:
        raw = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigInvalid((Problem(str(path), f"can't be read: {error.strerror}"),)) from None
    except (ValueError, RecursionError) as error:
        raise ConfigInvalid((Problem(str(path), f"is not TOML: {error}"),)) from None
    decode_config(raw, plugins=load_plugins())
    return raw
