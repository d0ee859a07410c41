"""``make cases`` runs tests by their names, at scales by theirs: each name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import cases

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: f"{case.number} {case.what}")
def test_case_names_a_test_and_what_scales_it(case: cases.Case) -> None:
    path, _, name = case.test.partition("::")
    text = (TESTS / path).read_text()

    assert re.search(rf"^async def {name}\w*\(", text, re.MULTILINE)
    assert case.scale.keys() <= set(re.findall(r'scale\.count\("(\w+)"', text))
