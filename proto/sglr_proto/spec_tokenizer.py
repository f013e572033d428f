"""The part of a SGLangBackend's spec that says where its tokenizer and chat template are."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec
from msgspec import Meta

from sglr_proto.spec_refs import ConfigMapKeyRef


class ControlTokens(enum.StrEnum):
    """What becomes of control tokens, such as ``<|im_end|>``, that a request's own text spells."""

    AS_TEXT = "AsText"
    """They are encoded as the characters they are: nobody can end a turn by typing it."""
    AS_TOKENS = "AsTokens"
    """They are encoded as the tokens, as SGLang's own HTTP server does."""


class HuggingFace(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A repository of the Hugging Face hub, or of a mirror of it."""

    repo: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=193,
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$",
            description="Name of the repository, such as `Qwen/Qwen3-8B`. No default; at most 193 "
            "characters: two names of 96 and a slash.",
        ),
    ]
    revision: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=255,
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$",
            description="A branch, a tag or a commit. Default: main. Name a commit where every "
            "router must have the same files.",
        ),
    ] = "main"

    def __post_init__(self) -> None:
        """Refuse steps upwards, and a line break at the end, which ``$`` lets through."""
        for name, value in (("repo", self.repo), ("revision", self.revision)):
            if ".." in value or not value.isprintable():
                raise ValueError(f"{name} is {value!r}; expected a name without '..' or line break")


class FromWorker(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The workers send it (`GetTokenizer`); there is nothing to say."""


class ChatTemplate(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Which chat template is used: exactly one of the four ways."""

    inline: Annotated[
        Annotated[str, Meta(min_length=1, max_length=65_536)] | None,
        Meta(
            description="The jinja2 template itself; at most 64 KiB, four times the longest there "
            "is."
        ),
    ] = None
    path: Annotated[
        Annotated[str, Meta(min_length=1, max_length=4096)] | None,
        Meta(description="A file with the template, as the router sees it."),
    ] = None
    name: Annotated[
        Annotated[str, Meta(min_length=1, max_length=253)] | None,
        Meta(
            description="One of the named templates that come with the tokenizer, such as `rag`, "
            "instead of the one named `default`."
        ),
    ] = None
    config_map_key_ref: Annotated[
        ConfigMapKeyRef | None,
        Meta(description="A value of a ConfigMap, at most 64 KiB. Needs the operator."),
    ] = None

    def __post_init__(self) -> None:
        """Refuse none, several, and paths and names that no one means."""
        ways = {"inline": self.inline, "path": self.path, "name": self.name}
        _exactly_one("inline", **ways, configMapKeyRef=self.config_map_key_ref)
        _refuse_unshowable(path=self.path, name=self.name)


class Tokenizer(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Where the model's tokenizer and chat template are: at most one of the first three fields.

    Without any of them the workers send theirs, as with `fromWorker`.
    """

    path: Annotated[
        Annotated[str, Meta(min_length=1, max_length=4096)] | None,
        Meta(
            description="A folder, as the router sees it, with tokenizer.json and "
            "tokenizer_config.json (or tekken.json, vocab.json with merges.txt, tiktoken.model), "
            "and chat_template.jinja if the template is apart. At most 4096 characters, Linux's "
            "own limit.",
        ),
    ] = None
    hugging_face: Annotated[
        HuggingFace | None,
        Meta(
            description="A repository of the Hugging Face hub. The router needs the `hub` extra, "
            "and honours HF_HUB_OFFLINE, HF_ENDPOINT, HF_TOKEN and HF_HOME."
        ),
    ] = None
    from_worker: Annotated[
        FromWorker | None,
        Meta(
            description="The workers send theirs. A worker whose vocabulary differs from the "
            "others' is not used. This is the default when no source is named."
        ),
    ] = None
    chat_template: Annotated[
        ChatTemplate | None,
        Meta(
            description="The chat template to use. Default: the one that comes with the tokenizer."
        ),
    ] = None
    control_tokens: Annotated[
        ControlTokens,
        Meta(
            description="What becomes of control tokens that the text of a request spells, outside "
            "of the assistant's own history. Default: AsText, so that no user can end a turn or "
            "begin one. AsTokens is what SGLang's own server does."
        ),
    ] = ControlTokens.AS_TEXT

    def __post_init__(self) -> None:
        """Refuse several sources, and a path that no one means."""
        named = {
            "path": self.path,
            "huggingFace": self.hugging_face,
            "fromWorker": self.from_worker,
        }
        sources = [name for name, value in named.items() if value is not None]
        if len(sources) > 1:
            raise ValueError(
                f"{sources[1]} is set beside {sources[0]}; expected at most one of path, "
                "huggingFace and fromWorker"
            )
        _refuse_unshowable(path=self.path)

    @property
    def is_from_worker(self) -> bool:
        """Whether the workers send it."""
        return self.path is None and self.hugging_face is None


def _exactly_one(first: str, **ways: object) -> None:
    """Raise unless exactly one of the fields is set; *first* is named when none is."""
    named = [name for name, value in ways.items() if value is not None]
    if len(named) != 1:
        *others, last = ways
        raise ValueError(
            f"{named[1] if named else first} is {'one of several' if named else 'missing'}; "
            f"expected exactly one of {', '.join(others)} and {last}"
        )


def _refuse_unshowable(**named: str | None) -> None:
    """Raise for NUL, line breaks and halves of surrogate pairs, which no one means."""
    for name, value in named.items():
        if value is not None and not value.isprintable():
            raise ValueError(f"{name} is {value!r}; expected printable characters")
