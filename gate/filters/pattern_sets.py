"""The sets of patterns that `pattern_set` names.

`secrets`: credentials whose form is known, so that ordinary text has none by accident. A form that many harmless words share (a bare run of hexadecimal digits, `password = ...`) is not among them.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Final

__all__ = ["PATTERN_SETS"]

_BASE64: Final = "[A-Za-z0-9+/=]"
_URL64: Final = "[A-Za-z0-9_-]"

PATTERN_SETS: Final[Mapping[str, tuple[str, ...]]] = types.MappingProxyType(
    {
        "secrets": (
            r"\b(?:AKIA|ASIA)[A-Z2-7]{16}\b",  # AWS: the id of an access key
            r"\bgh[pousr]_[A-Za-z0-9]{36}",  # GitHub: classic tokens
            r"\bgithub_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}",  # and fine-grained ones
            rf"\bglpat-{_URL64}{{20}}",  # GitLab
            rf"\bxox[abeoprs]-[0-9]{{8,16}}-{_URL64}{{10}}",  # Slack
            r"\bhooks\.slack\.com/services/T[A-Z0-9]{6,12}/B[A-Z0-9]{6,12}/[A-Za-z0-9]{20}",
            rf"\bAIza{_URL64}{{35}}",  # Google: API keys
            rf"\bGOCSPX-{_URL64}{{28}}",  # and OAuth client secrets
            r"\b[sr]k_(?:live|test)_[A-Za-z0-9]{16}",  # Stripe
            rf"\bsk-(?:proj|svcacct|admin)-{_URL64}{{40}}",  # OpenAI
            r"\bsk-[A-Za-z0-9]{32}",  # and whoever writes keys as it once did
            rf"\bsk-ant-(?:api|admin)[0-9]{{2}}-{_URL64}{{60}}",  # Anthropic
            r"\bhf_[A-Za-z]{34}\b",  # Hugging Face
            r"\bgsk_[A-Za-z0-9]{40}",  # Groq
            r"\bnpm_[A-Za-z0-9]{36}\b",
            rf"\bpypi-AgEI{_URL64}{{50}}",
            rf"\bSG\.{_URL64}{{16,32}}\.{_URL64}{{32}}",  # SendGrid
            r"\bdop_v1_[a-f0-9]{64}\b",  # DigitalOcean
            rf"\beyJ{_URL64}{{10,}}\.eyJ{_URL64}{{10,}}\.{_URL64}{{20}}",  # JWT
            rf"-----BEGIN (?:[A-Z]{{2,12}} ){{0,2}}PRIVATE KEY(?: BLOCK)?-----(?:\s|\\n){{0,8}}{_BASE64}{{16}}",  # PEM
        ),
    }
)
