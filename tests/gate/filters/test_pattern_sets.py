"""The sets of patterns that are shipped: each pattern can be used, finds what it is for, and leaves ordinary text alone."""

from __future__ import annotations

import pytest

from gate.filters.pattern_sets import PATTERN_SETS
from gate.regex import compile_patterns

LETTERS = "aB3dE5gH7jK9mN1pQ"
KEY = LETTERS * 8
# One of each, in the order of the set; none of them was ever a credential.
SECRETS = (
    "AKIA" + "A2B3C4D5E6F7G2H3",
    "ghp_" + KEY[:36],
    "github_pat_" + KEY[:22] + "_" + KEY[:59],
    "glpat-" + KEY[:20],
    "xoxb-123456789012-" + KEY[:24],
    "https://hooks.slack.com/services/T12345678/B12345678/" + KEY[:24],
    "AIza" + KEY[:35],
    "GOCSPX-" + KEY[:28],
    "sk_live_" + KEY[:24],
    "sk-proj-" + KEY[:48],
    "sk-" + KEY[:48],
    "sk-ant-api03-" + KEY[:80],
    "hf_" + "abcDEFghij" * 3 + "abcd",
    "gsk_" + KEY[:52],
    "npm_" + KEY[:36],
    "pypi-AgEI" + KEY[:60],
    "SG." + KEY[:22] + "." + KEY[:43],
    "dop_v1_" + "0123456789abcdef" * 4,
    "eyJ" + KEY[:20] + ".eyJ" + KEY[:20] + "." + KEY[:40],
    "-----BEGIN RSA PRIVATE KEY-----\n" + KEY[:64],
)
ORDINARY = "The key to it: a sk-learn model, an AKIA form, github_pat_ and eyJ as prefixes, 0123456789abcdef, and no secret."


@pytest.mark.parametrize("number", range(len(SECRETS)))
def test_each_pattern_finds_what_it_is_for(number: int) -> None:
    """Wherever it stands in a text."""
    pattern = compile_patterns((PATTERN_SETS["secrets"][number],))
    assert pattern.match(f"It is {SECRETS[number]} so far".encode(), ended=True) is not None
    assert pattern.match(ORDINARY.encode(), ended=True) is None


def test_every_pattern_has_its_example() -> None:
    """A new one needs one."""
    assert len(SECRETS) == len(PATTERN_SETS["secrets"])
