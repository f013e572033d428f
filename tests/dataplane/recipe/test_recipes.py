"""Recipes load beside each other, again until they work, and never during a request."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import pytest

from sglr_dataplane.engine import EngineFacts
from sglr_dataplane.engine.wire import write_job
from sglr_dataplane.errors import TokenizerUnavailableError
from sglr_dataplane.fleet.registry import Registry
from sglr_dataplane.fleet.signpost import Signpost
from sglr_dataplane.job import Job
from sglr_dataplane.prompt.conversation import Conversation, Message, Prompt
from sglr_dataplane.prompt.template import BrokenTemplateError
from sglr_dataplane.recipe import Recipe, Recipes, load_recipe
from sglr_dataplane.recipe import recipes as module
from sglr_dataplane.recipe.sources import Folder
from sglr_proto.backend import ChatTemplate, SGLangBackend, Tokenizer
from sglr_proto.sglang.scheduler_pb2 import GenerateRequest
from sglr_proto.snapshot import BackendSnapshot, Snapshot
from support.bundles import a_bundle
from support.engines import ScriptedEngine, some_facts
from support.fleets import a_backend, a_registry
from support.router import eventually
from support.tokenizers import DEMO_MODEL

HI = Conversation((Message(role="user", content="hi"),))


def here(**fields: object) -> Tokenizer:
    """Return the demo model's tokenizer as a manifest names it."""
    return Tokenizer(path=str(DEMO_MODEL), **fields)  # type: ignore[arg-type]  # fields of its own


def a_snapshot(*backends: SGLangBackend) -> Snapshot:
    """Return a snapshot of *backends*, without endpoints."""
    return Snapshot(backends=tuple(BackendSnapshot(backend=each) for each in backends))


class Following(Recipes):
    """Recipes that are found as a router finds them: beside a registry of the same snapshots."""

    def __init__(self) -> None:
        """Start empty."""
        super().__init__(None, max_prompt_chars=1_000_000)
        self._registry = Registry(lambda _endpoint, _backend: ScriptedEngine())
        self.follow(Signpost(self._registry))

    def apply(self, snapshot: Snapshot) -> None:
        """Follow *snapshot*, and so does the registry."""
        super().apply(snapshot)
        self._registry.apply(snapshot)


@asynccontextmanager
async def loading(*backends: SGLangBackend) -> AsyncIterator[Recipes]:
    """Return recipes that load what *backends* need."""
    recipes = Following()
    recipes.apply(a_snapshot(*backends))
    task = asyncio.create_task(recipes.load_as_needed())
    try:
        yield recipes
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def a_recipe(**fields: object) -> Recipe:
    """Return the demo model's recipe, with a backend that says *fields* of its tokenizer."""
    backend = a_backend(tokenizer=here(**fields))
    folder = Folder(DEMO_MODEL, "a test's")
    return load_recipe(backend, folder, threads=ThreadPoolExecutor(1))


def has(recipes: Recipes, model: str) -> bool:
    """Return whether the recipe of *model* is there."""
    try:
        recipes.find(model)
    except TokenizerUnavailableError:
        return False
    return True


async def test_a_backend_whose_loading_hangs_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One waits for ever in its thread; the other serves meanwhile, and the first says so."""
    go = threading.Event()
    real = load_recipe

    def slow(backend: SGLangBackend, *args: object, **kwargs: object) -> Recipe:
        if backend.spec.model.name == "slow":
            go.wait(10)
        return real(backend, *args, **kwargs)  # type: ignore[arg-type]  # handed through

    monkeypatch.setattr(module, "load_recipe", slow)
    slow_one = a_backend("a", model="slow", tokenizer=here())
    async with loading(slow_one, a_backend("b", model="quick", tokenizer=here())) as recipes:
        await eventually(lambda: has(recipes, "quick"))
        meanwhile = (has(recipes, "slow"), recipes.problem("default/a"))
        go.set()
        await eventually(lambda: has(recipes, "slow"))

    assert meanwhile == (False, "its tokenizer is being loaded")


async def test_a_recipe_follows_what_the_workers_say() -> None:
    """Their newest word completes it, from one request to the next, and again what was loaded."""
    recipes = Following()
    plain = ChatTemplate(inline="{% for m in messages %}{{ m.content }}{% endfor %}")
    silent = a_backend(model="m", tokenizer=here(chat_template=plain))
    said: list[EngineFacts | None] = [None]
    recipes.listen(lambda _key: said[0])

    heard: list[str | None] = []
    for backend in (a_backend(model="m", tokenizer=here()), silent):
        recipes.apply(a_snapshot(backend))
        await recipes.load(backend.key)
        for parser in (None, "glm47", "qwen", "qwen"):
            said[0] = replace(some_facts(), tool_call_parser=parser) if parser else None
            found = recipes.find("m").tool_format
            heard.append(found.name if found is not None else None)

    assert heard == ["qwen", "qwen", "qwen", "qwen", None, "glm47", "qwen", "qwen"]


async def test_a_backend_without_tokenizer_says_so_and_is_tried_again(tmp_path: Path) -> None:
    """The others serve; what is mounted later is found later."""
    place = tmp_path / "later"
    later = a_backend("a", model="later", tokenizer=Tokenizer(path=str(place)))
    async with loading(later, a_backend("b", model="here", tokenizer=here())) as recipes:
        await eventually(lambda: has(recipes, "here"))
        await eventually(lambda: recipes.problem("default/a") != "its tokenizer is being loaded")
        problem = recipes.problem("default/a")
        assert (recipes.failure("default/a"), recipes.failure("default/b")) == (problem, None)
        with pytest.raises(TokenizerUnavailableError, match="cannot be loaded"):
            recipes.find("later")
        place.symlink_to(DEMO_MODEL)
        await eventually(lambda: has(recipes, "later"))

    assert problem is not None
    assert problem.startswith("The tokenizer's directory is not there.")


def test_asking_for_one_backends_problem_looks_at_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes and reports ask about every backend every few seconds; there may be a thousand."""
    compared: list[str] = []
    recipes = Following()
    recipes.apply(a_snapshot(*(a_backend(name, model=name, tokenizer=here()) for name in "abc")))
    assert recipes.failure("default/a") is None, "it has not failed, only begun"
    recipes.load_folders(lambda: True)

    def same(one: SGLangBackend, _other: SGLangBackend) -> bool:
        compared.append(one.key)
        return True

    monkeypatch.setattr(module, "_needs_same", same)

    assert recipes.problem("default/a") is None
    assert compared == ["default/a"]


async def test_what_breaks_one_loading_breaks_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake of ours is logged, and that backend's alone."""
    real = load_recipe

    def broken(backend: SGLangBackend, *args: object, **kwargs: object) -> Recipe:
        if backend.spec.model.name == "broken":
            raise ZeroDivisionError
        return real(backend, *args, **kwargs)  # type: ignore[arg-type]  # handed through

    monkeypatch.setattr(module, "load_recipe", broken)
    broken_one = a_backend("a", model="broken", tokenizer=here())
    async with loading(broken_one, a_backend("b", model="sound", tokenizer=here())) as recipes:
        await eventually(lambda: has(recipes, "sound"))
        await eventually(lambda: "broke" in (recipes.problem("default/a") or ""))


async def test_a_recipe_is_kept_while_what_it_needs_is_the_same() -> None:
    """Other fields of the spec do not matter; another template does, once it is loaded."""
    backend = a_backend(tokenizer=here())
    async with loading(backend) as recipes:
        await eventually(lambda: has(recipes, "m"))
        first = recipes.find("m")
        recipes.apply(a_snapshot(a_backend(tokenizer=here(), aliases=("alias",))))
        kept = recipes.find("alias")
        template = ChatTemplate(inline="Q: {{ messages[0].content }}")
        recipes.apply(a_snapshot(a_backend(tokenizer=here(chat_template=template))))
        meanwhile = recipes.find("m")
        await eventually(lambda: recipes.find("m") is not first)
        prompt = recipes.find("m").chat_prompt(HI)
        recipes.apply(a_snapshot())

        assert (kept, meanwhile, recipes.get("default/chat")) == (first, first, None)
    assert prompt.text == "Q: hi"


async def test_a_tokenizer_that_cannot_be_loaded_leaves_the_last_good_one_in_force(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A typo is told; what served goes on, until the mistake is put right."""
    async with loading(a_backend(tokenizer=here())) as recipes:
        await eventually(lambda: has(recipes, "m"))
        first = recipes.find("m")
        recipes.apply(a_snapshot(a_backend(tokenizer=Tokenizer(path=str(tmp_path / "typo")))))
        at_once = recipes.problem("default/chat")
        await eventually(lambda: "the last good one stays in force" in caplog.text)
        told, meanwhile = recipes.problem("default/chat"), recipes.find("m")
        recipes.apply(a_snapshot(a_backend(tokenizer=here())))

        assert (meanwhile, recipes.find("m")) == (first, first)
        assert recipes.problem("default/chat") is None
    assert at_once == "its tokenizer is being loaded"
    assert told is not None
    assert told.startswith("The tokenizer's directory is not there.")


async def test_the_recipe_of_another_model_is_not_used_for_a_new_one(tmp_path: Path) -> None:
    """Another name and another tokenizer: the old one's ids would mean nothing to its workers."""
    async with loading(a_backend(tokenizer=here())) as recipes:
        await eventually(lambda: has(recipes, "m"))
        other = a_backend(model="other", tokenizer=Tokenizer(path=str(tmp_path / "later")))
        recipes.apply(a_snapshot(other))

        assert not has(recipes, "other")


async def test_a_model_that_is_only_renamed_is_served_meanwhile() -> None:
    """Its tokenizer is the same."""
    async with loading(a_backend(tokenizer=here())) as recipes:
        await eventually(lambda: has(recipes, "m"))
        recipes.apply(a_snapshot(a_backend(model="renamed", tokenizer=here())))
        at_once = has(recipes, "renamed")
        await eventually(lambda: recipes.find("renamed").model == "renamed")

    assert at_once


async def test_without_a_named_tokenizer_the_workers_decide() -> None:
    """Nothing is loaded before a worker has sent its own, and then that is."""
    engine = ScriptedEngine(bundles=[a_bundle()])
    (worker,) = a_registry({"w": engine}, ready=False).workers()
    async with loading(a_backend(tokenizer=Tokenizer())) as recipes:
        await eventually(lambda: recipes.problem("default/chat") == "no worker has sent its "
                         "tokenizer yet")  # fmt: skip
        accepted = await recipes.inspect(worker, True)
        await eventually(lambda: has(recipes, "m"))
        recipe = recipes.find("m")

    assert accepted is None
    assert recipe.source.startswith("a worker's (")
    assert recipe.tokenizer.encode("hi") == a_recipe().tokenizer.encode("hi")


async def test_another_vocabulary_is_never_used_with_the_old_workers_ids() -> None:
    """From the moment the workers have another one, the old recipe is gone."""
    other = a_bundle(tokenizer__json=(DEMO_MODEL / "tokenizer.json").read_text() + "\n")
    engine = ScriptedEngine(bundles=[a_bundle(), other])
    (worker,) = a_registry({"w": engine}, ready=False).workers()
    async with loading(a_backend(tokenizer=Tokenizer())) as recipes:
        await recipes.inspect(worker, True)
        await eventually(lambda: has(recipes, "m"))
        before = recipes.find("m").vocabulary.digest
        await recipes.inspect(worker, True)
        gone = not has(recipes, "m")
        await eventually(lambda: has(recipes, "m"))
        after = recipes.find("m").vocabulary.digest

    assert gone
    assert before != after


async def test_a_named_tokenizer_asks_no_worker() -> None:
    """A folder is enough: the workers' own are not downloaded."""
    engine = ScriptedEngine(bundles=[a_bundle()])
    (worker,) = a_registry({"w": engine}, ready=False).workers()
    async with loading(a_backend(tokenizer=here())) as recipes:
        assert await recipes.inspect(worker, True) is None
    assert engine.sent == 0


def test_the_template_may_be_given_in_three_ways(tmp_path: Path) -> None:
    """Inline, in a file, or by the name of one that came with the tokenizer."""
    file = tmp_path / "t.jinja"
    file.write_text("file {{ messages[0].content }}")
    ways = {
        "inline hi": ChatTemplate(inline="inline {{ messages[0].content }}"),
        "file hi": ChatTemplate(path=str(file)),
    }

    for expected, way in ways.items():
        assert a_recipe(chat_template=way).template.render([{"content": "hi"}]) == expected
    default = a_recipe(chat_template=ChatTemplate(name="default")).template
    assert default.text == (DEMO_MODEL / "chat_template.jinja").read_text()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot be read: No such file"),
        (b"\xff", "is not UTF-8"),
        (b"x" * (2**20 + 1), "has more than 1048576 bytes"),
        (b"{% for %}", "does not compile in line 1"),
    ],
)
def test_a_template_that_cannot_be_had_is_told_without_its_path(
    tmp_path: Path, content: bytes | None, sentence: str
) -> None:
    """What is wrong with the file is for everyone to see; where it is, is not."""
    file = tmp_path / "t.jinja"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(BrokenTemplateError, match=sentence) as caught:
        a_recipe(chat_template=ChatTemplate(path=str(file)))
    assert str(tmp_path) not in str(caught.value)


def test_a_name_that_no_template_has_is_told_with_those_there_are() -> None:
    """So that the next try is right."""
    with pytest.raises(BrokenTemplateError, match="named 'rag'; there are: 'default'"):
        a_recipe(chat_template=ChatTemplate(name="rag"))


@pytest.mark.parametrize("asked", ["AsText", "AsTokens"])
async def test_control_tokens_that_people_type_are_what_the_backend_says(asked: str) -> None:
    """One switch: three control tokens are the template's; with AsTokens the typed one counts."""
    typed = "a<|im_end|>b"
    conversation = Conversation((Message(role="user", content=typed),))
    wanted = msgspec.convert({"path": str(DEMO_MODEL), "controlTokens": asked}, Tokenizer)
    recipe = load_recipe(
        a_backend(tokenizer=wanted), Folder(DEMO_MODEL, ""), threads=ThreadPoolExecutor(1)
    )

    prompt = recipe.chat_prompt(conversation)

    end = recipe.vocabulary.id_of("<|im_end|>")
    assert prompt.ids.count(end) == {"AsText": 1, "AsTokens": 2}[asked]
    assert recipe.vocabulary.decode(prompt.ids) == prompt.text
    assert f"<|im_start|>user\n{typed}<|im_end|>" in prompt.text


async def test_a48_a_long_prompt_is_packed_for_the_wire_in_its_thread() -> None:
    """On the event loop a million ids would take a tenth of a second; a short one has no need."""
    with ThreadPoolExecutor(1) as threads:
        recipe = load_recipe(a_backend(tokenizer=here()), Folder(DEMO_MODEL, ""), threads=threads)
        ids = tuple(number % recipe.vocabulary.size for number in range(70_001))
        prompts = [
            await recipe.aside(size, partial(recipe.text_prompt, ids[:count], "prompt"))
            for count, size in ((70_001, 400_000), (9, 400_000), (9, 40))
        ]

    first, *short = prompts
    job = Job("0" * 32, "m", first.ids, packed_ids=first.packed)
    read = GenerateRequest.FromString(write_job(job))
    assert first.packed
    assert tuple(read.tokenized.input_ids) == ids
    assert [prompt.packed for prompt in short] == [b"", b""]


async def test_a48_as_many_long_prompts_are_made_at_a_time_as_there_are_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others wait, and the event loop turns meanwhile."""
    running, most = 0, 0
    lock, go = threading.Lock(), threading.Event()

    def counted(conversation: Conversation, template: ChatTemplate, controls: object) -> Prompt:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        go.wait(10)
        with lock:
            running -= 1
        return Prompt("hi")

    monkeypatch.setattr("sglr_dataplane.recipe.recipe.rendered", counted)
    with ThreadPoolExecutor(2) as threads:
        recipe = load_recipe(a_backend(tokenizer=here()), Folder(DEMO_MODEL, ""), threads=threads)
        waiting = [
            asyncio.create_task(recipe.aside(10**6, partial(recipe.chat_prompt, HI)))
            for _ in range(6)
        ]
        await eventually(lambda: running == 2)
        go.set()
        prompts = await asyncio.gather(*waiting)

    assert most == 2
    assert [prompt.text for prompt in prompts] == ["hi"] * 6
