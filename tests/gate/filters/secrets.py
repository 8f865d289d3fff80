"""One text for each pattern of the set `secrets`, in its order."""

from __future__ import annotations

from typing import Final

ALNUM: Final = "a1B2c3D4e5F6g7H8i9J0" * 20
HEX: Final = "0123456789abcdef" * 4
# One of each of the set, put together here so that no scanner takes this file for a leak.
SECRETS: Final = (
    "AKIA" + "ABCDEFGHIJ234567",
    "ghp" + "_" + ALNUM[:36],
    "github" + "_pat_" + ALNUM[:22] + "_" + ALNUM[:59],
    "glpat" + "-" + ALNUM[:20],
    "xoxb" + "-123456789012-" + ALNUM[:24],
    "hooks.slack.com" + "/services/T12345678/B12345678/" + ALNUM[:24],
    "AIza" + ALNUM[:35],
    "GOCSPX" + "-" + ALNUM[:28],
    "sk" + "_live_" + ALNUM[:24],
    "sk" + "-proj-" + ALNUM[:60],
    "sk" + "-" + ALNUM[:48],
    "sk" + "-ant-api03-" + ALNUM[:80],
    "hf" + "_" + "abcdefghijklmnopqrstuvwxyzABCDEFGH",
    "gsk" + "_" + ALNUM[:52],
    "npm" + "_" + ALNUM[:36],
    "pypi" + "-AgEI" + ALNUM[:60],
    "SG" + "." + ALNUM[:22] + "." + ALNUM[:43],
    "dop" + "_v1_" + HEX,
    "eyJ" + ALNUM[:20] + ".eyJ" + ALNUM[:40] + "." + ALNUM[:43],
    "-----BEGIN RSA PRIVATE" + " KEY-----\n" + ALNUM[:64],
)
