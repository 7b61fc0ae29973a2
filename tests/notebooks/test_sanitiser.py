"""Each rule of the sanitiser does what it says, and no rule is switched off by its layout."""

import re
from pathlib import Path

import pytest
from nbval.plugin import get_sanitize_patterns

TEXT = (Path(__file__).parent / "sanitize.cfg").read_text()


def sanitised(text):
    for pattern, replacement in get_sanitize_patterns(TEXT):
        text = re.sub(pattern, replacement, text)
    return text


def test_every_rule_is_seen_by_nbval():
    assert len(get_sanitize_patterns(TEXT)) == TEXT.count("\nregex:") == TEXT.count("\nreplace:")


def test_a_blank_line_inside_a_rule_would_switch_it_off():
    assert get_sanitize_patterns("regex: a\n\nreplace: b\n") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<object at 0x7f3a2b4c5d60>", "<object at 0xADDRESS>"),
        ("0x10", "0x10"),
        ("-0.000 and -0", "0.000 and 0"),
        ("-0.001", "-0.001"),
        ("-0.5", "-0.5"),
        ("1-0", "1-0"),
        ("-0.0e-3", "-0.0e-3"),
        ("mean 0.9515 ± 0.0012", "mean 0.9515 ± 0.0012"),
    ],
)
def test_rules_change_noise_and_nothing_else(text, expected):
    assert sanitised(text) == expected
