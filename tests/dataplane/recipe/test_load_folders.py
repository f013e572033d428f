"""Recipes that are loaded before there are processes, for all of them."""

from __future__ import annotations

from sglr_dataplane.recipe import Recipes
from sglr_proto.backend import Tokenizer
from sglr_proto.snapshot import BackendSnapshot, Snapshot
from support.fleets import a_backend
from support.tokenizers import DEMO_MODEL


def wanting(**tokenizers: Tokenizer) -> Recipes:
    """Return recipes that want those of backends with these tokenizers, by name."""
    backends = (a_backend(name, model=name, tokenizer=t) for name, t in tokenizers.items())
    recipes = Recipes(None, max_prompt_chars=1000)
    recipes.apply(Snapshot(backends=tuple(BackendSnapshot(backend=each) for each in backends)))
    return recipes


def test_folders_are_loaded_and_nothing_else() -> None:
    """What comes from workers, and what is damaged, is left to the processes."""
    recipes = wanting(
        here=Tokenizer(path=str(DEMO_MODEL)),
        nowhere=Tokenizer(path="/nowhere"),
        worker=Tokenizer(),
    )
    recipes.load_folders(lambda: True)

    assert recipes.get("default/here") is not None
    assert recipes.get("default/nowhere") is None
    assert "tokenizer" in (recipes.problem("default/nowhere") or "")
    assert recipes.get("default/worker") is None


def test_what_takes_too_long_is_left_to_the_processes() -> None:
    """The start is not put off for hours by a long list."""
    looks = iter([True, False])
    recipes = wanting(**{name: Tokenizer(path=str(DEMO_MODEL)) for name in ("a", "b")})
    recipes.load_folders(lambda: next(looks))

    assert recipes.get("default/a") is not None
    assert recipes.get("default/b") is None


def test_a_process_goes_on_from_what_was_loaded() -> None:
    """The same recipe, not another one: its memory is shared."""
    recipes = wanting(a=Tokenizer(path=str(DEMO_MODEL)))
    recipes.load_folders(lambda: True)
    loaded = recipes.get("default/a")
    backend = a_backend("a", model="a", tokenizer=Tokenizer(path=str(DEMO_MODEL)))
    recipes.apply(Snapshot(version=2, backends=(BackendSnapshot(backend=backend),)))

    assert recipes.get("default/a") is loaded
    assert recipes.problem("default/a") is None
