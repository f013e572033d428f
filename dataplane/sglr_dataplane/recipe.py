"""Recipes: what one model needs around its workers, loaded before the first request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from sglr_dataplane.errors import (
    InvalidRequestError,
    TokenizerUnavailableError,
    UnknownModelError,
)
from sglr_dataplane.output.detect import detect
from sglr_dataplane.output.families.declare import ReasoningFormat, ToolFormat
from sglr_dataplane.output.thinking import reasoning_start
from sglr_dataplane.prompt.conversation import Conversation
from sglr_dataplane.prompt.json_values import is_array, is_object
from sglr_dataplane.prompt.ranges import integer_in
from sglr_dataplane.prompt.rendering import rendered
from sglr_dataplane.prompt.template import BrokenTemplateError, ChatTemplate
from sglr_dataplane.prompt.tokenizer import Tokenizer
from sglr_dataplane.vocab import TokenizerLoadError, Vocabulary
from sglr_proto.backend import SGLangBackend
from sglr_proto.snapshot import Snapshot

logger = logging.getLogger(__name__)

_FIRST_RETRY: Final = 1.0
_LAST_RETRY: Final = 30.0
"""Seconds between two tries to load a recipe: a volume may be mounted, or filled, later."""


@dataclass(frozen=True, slots=True)
class PromptIds:
    """A rendered prompt, as text and as the ids that the worker gets."""

    text: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Recipe:
    """What the model of one backend needs: template, tokenizer, and how it writes its answers."""

    backend_key: str
    template: ChatTemplate
    tokenizer: Tokenizer
    tool_format: ToolFormat | None
    reasoning_format: ReasoningFormat | None
    formats_reason: str
    """Why these formats were chosen, in one clause."""
    added_tokens: frozenset[str]
    """Texts of the tokenizer's added tokens."""
    ends: frozenset[int]
    """Ids of the tokens that end an answer and are no part of it."""

    @property
    def model(self) -> str:
        """The name the backend gives its model."""
        return self.template.model

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens of the model, by id."""
        return self.tokenizer.vocabulary

    def thinks_after(self, prompt: PromptIds) -> bool:
        """Return whether the answer to *prompt* begins inside reasoning."""
        return reasoning_start(prompt.text, self.reasoning_format) == "inside"

    async def prompt(self, conversation: Conversation, size: int) -> PromptIds:
        """Return the prompt of *conversation*, in a thread when it may take a millisecond or more.

        Args:
            conversation: What the client sent.
            size: Bytes of the request's body: no prompt is much longer than that.

        Raises:
            InvalidRequestError: The template or the tokenizer refuses it.
        """
        if size <= self.tokenizer.encode_in_thread_above:
            return self._prompt(conversation)
        return await asyncio.to_thread(self._prompt, conversation)

    async def completion_prompt(
        self, prompt: str | tuple[int, ...], param: str, size: int
    ) -> PromptIds:
        """Return *prompt*, text or ids, as it goes to a worker; in a thread when it is long.

        Args:
            prompt: Text, which gets the tokens that the model wants around a text; or ids.
            param: What a refusal names.
            size: Bytes of the request's body.

        Raises:
            InvalidRequestError: An id is none of the vocabulary, or the tokenizer refuses it.
        """
        if size <= self.tokenizer.encode_in_thread_above:
            return self._completion_prompt(prompt, param)
        return await asyncio.to_thread(self._completion_prompt, prompt, param)

    def _completion_prompt(self, prompt: str | tuple[int, ...], param: str) -> PromptIds:
        if isinstance(prompt, str):
            return PromptIds(prompt, self.tokenizer.encode_completion(prompt))
        last = self.vocabulary.size - 1
        for at, token_id in enumerate(prompt):
            integer_in(token_id, f"{param}[{at}]", 0, last)
        return PromptIds(self.vocabulary.decode(prompt, self.vocabulary.special), prompt)

    def _prompt(self, conversation: Conversation) -> PromptIds:
        prompt = rendered(conversation, self.template)
        ids = self.tokenizer.encode(prompt.text)
        if prompt.continuation:
            ids += self.tokenizer.encode(prompt.continuation)
        return PromptIds(prompt.text + prompt.continuation, ids)


def load_recipe(backend: SGLangBackend, *, cache_dir: Path | None, max_prompt_chars: int) -> Recipe:
    """Return the recipe of *backend*; reads files and takes up to seconds.

    Raises:
        TokenizerLoadError: The tokenizer cannot be loaded.
        BrokenTemplateError: The chat template does not compile.
    """
    path = Path(backend.spec.tokenizer.path or "")
    tokenizer = Tokenizer.from_dir(path, verdicts=cache_dir, max_characters=max_prompt_chars)
    template = ChatTemplate.from_dir(path, model=backend.spec.model.name)
    added_tokens = frozenset(tokenizer.vocabulary.added.values())
    chosen = detect(template.text or "", backend.spec.model.name, added_tokens)
    return Recipe(
        backend_key=backend.key,
        template=template,
        tokenizer=tokenizer,
        tool_format=chosen.tool,
        reasoning_format=chosen.reasoning,
        formats_reason=chosen.reason,
        added_tokens=added_tokens,
        ends=_end_ids(path, tokenizer),
    )


def _end_ids(path: Path, tokenizer: Tokenizer) -> frozenset[int]:
    """Return the ids that end an answer, by the tokenizer and by ``generation_config.json``."""
    texts = [text for text in (tokenizer.eos,) if text is not None]
    try:
        config: Any = msgspec.json.decode((path / "generation_config.json").read_bytes())
    except (OSError, msgspec.DecodeError):
        config = None
    named = config.get("eos_token_id") if is_object(config) else None
    listed = named if is_array(named) else [named]
    return tokenizer.vocabulary.ids_of(texts) | {i for i in listed if isinstance(i, int)}


class Recipes:
    """The recipes of every backend: loads them when a snapshot needs them, keeps what is unchanged.

    Nothing is loaded during a request; a backend whose recipe is missing says so, and the others
    serve.
    """

    def __init__(self, cache_dir: str | None, *, max_prompt_chars: int) -> None:
        """Start empty."""
        self._cache_dir = Path(cache_dir) if cache_dir is not None else None
        self._max_prompt_chars = max_prompt_chars
        self._wanted: dict[str, SGLangBackend] = {}
        self._keys: dict[str, str] = {}
        self._loaded: dict[str, tuple[SGLangBackend, Recipe]] = {}
        self._problems: dict[str, str] = {}
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Recipes loaded={sorted(self._loaded)} problems={self._problems}>"

    def apply(self, snapshot: Snapshot) -> None:
        """Want the recipes of *snapshot*'s backends, and no others."""
        backends = [each.backend for each in snapshot.backends]
        self._wanted = {backend.key: backend for backend in backends}
        self._keys = {}
        for backend in backends:
            for name in backend.spec.model.names:
                self._keys.setdefault(name, backend.key)
        self._loaded = {
            key: (backend, recipe)
            for key, (backend, recipe) in self._loaded.items()
            if key in self._wanted and _needs_same(backend, self._wanted[key])
        }
        self._problems = {k: v for k, v in self._problems.items() if k in self._wanted}
        self._changed.set()

    def find(self, model: str | None) -> Recipe:
        """Return the recipe that serves the name or alias *model*; None: the only one there is.

        Raises:
            InvalidRequestError: None is named, and there are several.
            UnknownModelError: No backend has that name.
            TokenizerUnavailableError: Its recipe is not loaded (yet).
        """
        if model is None:
            model = self._only_model()
        key = self._keys.get(model)
        if key is None:
            raise UnknownModelError(
                f"The model {model!r} does not exist here; GET /v1/models lists those that do.",
                param="model",
            )
        if key not in self._loaded:
            raise TokenizerUnavailableError(
                f"The tokenizer of model {model!r} is not loaded yet."
                if key not in self._problems
                else f"The tokenizer of model {model!r} cannot be loaded; the router's log and "
                "/readyz have the reason."
            )
        return self._loaded[key][1]

    def _only_model(self) -> str:
        names = [backend.spec.model.name for backend in self._wanted.values()]
        if len(names) != 1:
            raise InvalidRequestError(
                "Missing required parameter: 'model'; this router serves several, and GET /v1/models"
                " lists them.",
                param="model",
                code="missing_required_parameter",
            )
        return names[0]

    def problem(self, backend_key: str) -> str | None:
        """Return why *backend_key* has no recipe; None when it has one."""
        if backend_key in self._loaded:
            return None
        return self._problems.get(backend_key, "its tokenizer is being loaded")

    async def load_as_needed(self) -> None:
        """Load what is wanted and missing, for ever; what fails is tried again, ever more rarely."""
        pause = _FIRST_RETRY
        while True:
            self._changed.clear()
            for key, backend in self._missing().items():
                await self._load(key, backend)
            try:
                async with asyncio.timeout(pause if self._missing() else None):
                    await self._changed.wait()
                pause = _FIRST_RETRY
            except TimeoutError:
                pause = min(pause * 2, _LAST_RETRY)

    def _missing(self) -> Mapping[str, SGLangBackend]:
        return {key: backend for key, backend in self._wanted.items() if key not in self._loaded}

    async def _load(self, key: str, backend: SGLangBackend) -> None:
        try:
            recipe = await asyncio.to_thread(
                load_recipe,
                backend,
                cache_dir=self._cache_dir,
                max_prompt_chars=self._max_prompt_chars,
            )
        except (TokenizerLoadError, BrokenTemplateError) as error:
            if self._problems.get(key) != str(error):
                logger.warning("recipe unavailable", extra={"backend": key, "reason": str(error)})
            self._problems[key] = str(error)
            return
        wanted = self._wanted.get(key)
        if wanted is None or not _needs_same(backend, wanted):
            return  # the backend changed while its recipe was loading
        self._problems.pop(key, None)
        self._loaded[key] = (backend, recipe)
        logger.info(
            "recipe loaded",
            extra={
                "backend": key,
                "encoder": recipe.tokenizer.encoder_name,
                "encoder_reason": recipe.tokenizer.encoder_reason,
                "tool_format": recipe.tool_format and recipe.tool_format.name,
                "reasoning_format": recipe.reasoning_format and recipe.reasoning_format.name,
                "formats_reason": recipe.formats_reason,
            },
        )


def _needs_same(one: SGLangBackend, other: SGLangBackend) -> bool:
    """Return whether two versions of a backend need the same recipe."""
    return (one.spec.tokenizer, one.spec.model.name) == (
        other.spec.tokenizer,
        other.spec.model.name,
    )
