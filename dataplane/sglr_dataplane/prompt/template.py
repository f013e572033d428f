"""Chat templates: from messages to the text that the model was trained to see."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, Template, TemplateError, TemplateSyntaxError, meta, nodes
from jinja2.runtime import Context

from sglr_dataplane.errors import InvalidRequestError, TemplateRefusalError
from sglr_dataplane.prompt.budget import BUDGET, Budget, RenderLimits
from sglr_dataplane.prompt.messages import ContentFormat
from sglr_dataplane.prompt.sandbox import TemplateEnvironment, TemplateRaised
from sglr_dataplane.prompt.template_files import TemplateFiles, template_files

_MEDIA_WORDS = ("image", "audio", "video", "vision")
_MESSAGE_NAMES = ("message", "msg", "m")

_FAILURES = (
    TemplateError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RuntimeError,  # RecursionError too
    MemoryError,
)
"""What a template can raise on messages it does not expect; all the caller's to see."""


class BrokenTemplateError(ValueError):
    """A chat template is no jinja2 template; the message says where and why."""


class ChatTemplate:
    """A model's chat template, compiled once; rendering is safe from several threads at once.

    Args:
        text: The template; None for a model that has none.
        tool_text: The template for requests with tools, where the model has one of its own.
        special_tokens: ``bos_token``, ``eos_token`` and so on, as the template names them.
        model: The name that refusals give.
        limits: What one rendering may cost.
        now: The local time, for ``strftime_now``.
        clock: Rising seconds, for the time limit.

    Raises:
        BrokenTemplateError: *text* or *tool_text* does not compile.
    """

    def __init__(
        self,
        text: str | None,
        *,
        tool_text: str | None = None,
        special_tokens: Mapping[str, str] | None = None,
        model: str = "",
        limits: RenderLimits | None = None,
        now: Callable[[], datetime] = datetime.now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.text = text
        self.model = model
        self.special_tokens = dict(special_tokens or {})
        self._limits = limits or RenderLimits()
        self._clock = clock
        self._environment = TemplateEnvironment(now)
        self._template = None if text is None else self._compiled(text)
        self._tool_template = None if tool_text is None else self._compiled(tool_text)
        self.content_format: ContentFormat = content_format_of(self._environment, text or "")
        self.knows_developer = "developer" in (text or "")
        self._reads = self._read_names(text, tool_text)

    def __repr__(self) -> str:
        return (
            f"<ChatTemplate model={self.model!r} content_format={self.content_format!r}"
            f" reads={sorted(self._reads)}>"
        )

    @classmethod
    def from_dir(
        cls,
        path: Path,
        *,
        model: str = "",
        text: str | None = None,
        name: str | None = None,
        limits: RenderLimits | None = None,
        now: Callable[[], datetime] = datetime.now,
    ) -> ChatTemplate:
        """Return the template of the model in directory *path*; one that refuses if it has none.

        Args:
            path: Holds the special tokens, and the templates unless *text* is given.
            model: The name that refusals give.
            text: A template to use instead of the directory's.
            name: Which of several named templates to use; None: the usual ones.
            limits: What one rendering may cost.
            now: The local time, for ``strftime_now``.

        Raises:
            BrokenTemplateError: A file is no JSON, or no template, or there is none of that name.
        """
        try:
            files: TemplateFiles = template_files(path, name=name)
        except ValueError as error:
            raise BrokenTemplateError(str(error)) from error
        if text is not None:
            files = replace(files, text=text, tool_text=None)
        return cls(
            files.text,
            tool_text=files.tool_text,
            special_tokens=files.special_tokens,
            model=model,
            limits=limits,
            now=now,
        )

    def reads(self, name: str) -> bool:
        """Return whether the template looks at the variable *name*, such as ``tools``."""
        return name in self._reads

    def render(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        add_generation_prompt: bool = True,
    ) -> str:
        """Return the prompt of *messages*.

        Args:
            messages: Plain JSON values, prepared for this template.
            tools: Plain JSON values; None when none are offered.
            kwargs: What the request adds, such as ``enable_thinking``; names already checked.
            add_generation_prompt: Whether the prompt ends with the start of the answer.

        Raises:
            TemplateRefusalError: The template refuses or fails on these messages, or exceeds its
                limits (RenderBudgetError); *param* is ``messages``.
            InvalidRequestError: The model has no template.
        """
        template = self._tool_template if tools and self._tool_template else self._template
        if template is None:
            raise InvalidRequestError(
                f"Model {self.model!r} has no chat template, so it cannot answer messages; send"
                " ready-made text to /v1/completions instead.",
                param="messages",
            )
        names = {
            **self._environment.globals,
            **self.special_tokens,
            **(kwargs or {}),
            "messages": messages,
            "tools": tools,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            BUDGET: Budget(self._limits, self._clock),
        }
        try:
            return self._written(template, names)
        except TemplateRaised as refusal:
            raise TemplateRefusalError(
                str(refusal) or "The chat template refuses these messages.", param="messages"
            ) from refusal
        except _FAILURES as error:
            raise TemplateRefusalError(
                "The chat template of this model cannot render these messages:"
                f" {type(error).__name__}: {error}",
                param="messages",
            ) from error

    def _written(self, template: Template, names: dict[str, Any]) -> str:
        context = Context(self._environment, names, template.name, template.blocks)
        # What is written was counted piece by piece, also what other pieces were made of.
        text = "".join(template.root_render_func(context))
        names[BUDGET].fits(len(text))
        return text

    def _compiled(self, text: str) -> Template:
        try:
            tree = self._environment.budgeted(text)
            code = self._environment.compile(tree)
        except (TemplateSyntaxError, RecursionError) as error:
            where = f" in line {error.lineno}" if isinstance(error, TemplateSyntaxError) else ""
            raise BrokenTemplateError(
                f"The chat template of {self.model!r} does not compile{where}: {error}"
            ) from error
        return Template.from_code(self._environment, code, self._environment.globals)

    def _read_names(self, *texts: str | None) -> frozenset[str]:
        trees = [self._environment.parse(text) for text in texts if text is not None]
        names: set[str] = set()
        return frozenset(names.union(*map(meta.find_undeclared_variables, trees)))


def content_format_of(environment: Environment, text: str) -> ContentFormat:
    """Return whether template *text* wants content as a string or as a list of parts.

    sglang@v0.5.23 jinja_template_utils.py: a template that speaks of media, or loops over a
    message's content, is given the parts.
    """
    if any(word in text for word in _MEDIA_WORDS):
        return "openai"
    loops = (_is_content(loop.iter) for loop in environment.parse(text).find_all(nodes.For))
    return "openai" if any(loops) else "string"


def _is_content(node: nodes.Node | None) -> bool:
    """Return whether *node* is ``message.content``, with filters, tests or a slice around it."""
    if isinstance(node, nodes.Filter | nodes.Test):
        return _is_content(node.node)
    if isinstance(node, nodes.Getattr):
        return node.attr == "content" and _is_message(node.node)
    if isinstance(node, nodes.Getitem):
        if isinstance(node.arg, nodes.Slice):
            return _is_content(node.node)
        is_key = isinstance(node.arg, nodes.Const) and node.arg.value == "content"
        return is_key and _is_message(node.node)
    return False


def _is_message(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Name) and node.name in _MESSAGE_NAMES
