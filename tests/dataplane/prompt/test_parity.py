"""Prompts have the ids that SGLang's own front end gives them, recorded by ``scripts/parity``."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from support.tokenizers import REAL, ROOT, VERDICTS, real_tokenizer

RECORDED: dict[str, dict[str, str]] = json.loads(
    (Path(__file__).parent / "parity.json").read_text("utf-8")
)


@pytest.fixture
def parity(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the scripts' view of what the router makes of requests."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("parity.ours")


@pytest.fixture
def shapes(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """Return the requests by the names of their shapes."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    found: dict[str, dict[str, Any]] = importlib.import_module("parity.shapes").SHAPES
    return found


def test_every_family_was_compared_in_every_shape(shapes: dict[str, dict[str, Any]]) -> None:
    """At least 30 shapes; what is not recorded is one of the few decisions of the comparison."""
    assert set(RECORDED) == set(REAL)
    assert len(shapes) >= 30
    for name, recorded in RECORDED.items():
        assert recorded.keys() <= shapes.keys(), name


@pytest.mark.timeout(120)  # the largest vocabularies take seconds to load, twice
@pytest.mark.parametrize("mode", ["AsTokens", "AsText"])
@pytest.mark.parametrize("name", REAL)
async def test_every_shape_has_the_ids_that_sglang_gives_it(
    name: str, mode: str, parity: ModuleType, shapes: dict[str, dict[str, Any]]
) -> None:
    """Zero differences; where a request spells a control token, only in the mode that counts it."""
    if name in parity.BORROWED:
        real_tokenizer(parity.BORROWED[name])
    recipe = parity.recipe_for(real_tokenizer(name), VERDICTS, mode)
    for shape, expected in RECORDED[name].items():
        body = shapes[shape]
        ours = await parity.of_router(recipe, body)
        spelled = recipe.tokenizer.controls.is_in(json.dumps(body, ensure_ascii=False))
        if mode == "AsTokens" or not spelled:
            assert parity.fingerprint(ours.ids) == expected, (shape, ours.refusal)
