"""The command `record` serves what `serve` does, and keeps everything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gate.config_check import decode_config
from gate.config_rules import ConfigInvalid
from ops.record import recording, tables_of
from tests.tracing import tables
from transport.configfile import Loaded, Secrets


@pytest.mark.parametrize("observe", [{}, {"observe": {"log": "text", "sample_success": 0.0}}])
def test_everything_is_recorded_whatever_the_file_says(tmp_path: Path, observe: dict[str, Any]) -> None:  # fmt: skip
    """The rest of the configuration stays as it is."""
    raw = {**tables(1), **observe}
    loaded = Loaded(decode_config(raw), raw, Secrets({}, {}, {}, ""), source="a test")
    made = recording(loaded, tmp_path)
    kept = made.config.observe
    assert (kept.record_dir, kept.record_content) == (str(tmp_path), "full")
    assert (kept.sample_success, kept.sample_failure) == (1.0, 1.0)
    assert kept.log == loaded.config.observe.log
    assert made.config.models == loaded.config.models
    assert decode_config(made.raw).observe == kept


def test_a_configuration_that_is_asked_about_needs_no_secret(tmp_path: Path) -> None:
    """The variable that it names is not set here."""
    path = tmp_path / "new.toml"
    path.write_text('[[keys]]\nname = "a"\nkey_env = "NOBODY_SETS_THIS"\n')
    assert tables_of(path)["keys"]


@pytest.mark.parametrize("content", ["[", "limits = 7", b"\xff"])
def test_what_is_no_configuration_is_told(tmp_path: Path, content: str | bytes) -> None:
    """With the file's name, or the path of the key."""
    path = tmp_path / "new.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigInvalid):
        tables_of(path)
    with pytest.raises(ConfigInvalid, match="can't be read"):
        tables_of(tmp_path / "none.toml")
