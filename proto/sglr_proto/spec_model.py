"""What a backend's spec says about the model its workers serve, and about its share of requests."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec
from msgspec import Meta

from sglr_proto.spec_routing import HeaderName

ModelName = Annotated[str, Meta(min_length=1, max_length=256, pattern=r"^\S+$")]
"""What a client sends as ``model``; 256 holds the longest repository name with a path in front."""


class Adapter(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A LoRA adapter that clients may send as the model."""

    name: Annotated[
        ModelName,
        Meta(description="What clients send as `model`: 1 to 256 characters, no whitespace."),
    ]
    served_name: Annotated[
        ModelName | None,
        Meta(description="What the workers call it. Default: its name."),
    ] = None

    @property
    def worker_name(self) -> str:
        """The name in the workers' lists."""
        return self.served_name or self.name


class AdapterDiscovery(enum.StrEnum):
    """Whether adapters that no spec names can be asked for."""

    DISABLED = "Disabled"
    """Only those of `adapters`."""
    WORKER = "Worker"
    """Every one that a worker lists, under the worker's name for it."""


class Model(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which model the workers serve."""

    name: Annotated[
        ModelName,
        Meta(
            description="What clients send as `model`: 1 to 256 characters, no whitespace. "
            "Backends of one namespace with one name share its requests, as `traffic` says."
        ),
    ]
    aliases: Annotated[
        tuple[ModelName, ...],
        Meta(
            max_length=16,
            description="Other names that clients may send. Each differs from the name and from "
            "the others. Default: none; at most 16, which keeps /v1/models readable.",
        ),
    ] = ()
    served_name: Annotated[
        ModelName | None,
        Meta(
            description="What the workers call the model; a worker that serves another one is not "
            "used. Default: the name or one of the aliases."
        ),
    ] = None
    adapters: Annotated[
        tuple[Adapter, ...],
        Meta(
            max_length=64,
            description="LoRA adapters that clients may send as `model`, or as `name:adapter`; "
            "each is served by the workers that list it, and unknown while none does. "
            "Default: none; at most 64.",
        ),
    ] = ()
    adapter_discovery: Annotated[
        AdapterDiscovery,
        Meta(
            description="Whether adapters that a worker lists are served without being named here. "
            "Default: Disabled, so that nobody widens what clients may ask for by accident."
        ),
    ] = AdapterDiscovery.DISABLED

    def __post_init__(self) -> None:
        """Refuse names that are not one word, or that say the same twice."""
        refuse_unprintable(name=self.name)
        if self.served_name is not None:
            refuse_unprintable(servedName=self.served_name)
        for index, alias in enumerate(self.aliases):
            refuse_unprintable(**{f"aliases[{index}]": alias})
            if alias == self.name:
                raise ValueError(f"aliases[{index}] is {alias!r}; that is the model's name already")
            if alias in self.aliases[:index]:
                raise ValueError(f"aliases[{index}] is {alias!r}; that alias stands there twice")
        self._check_adapters()

    def _check_adapters(self) -> None:
        taken = set(self.names)
        for index, adapter in enumerate(self.adapters):
            refuse_unprintable(**{f"adapters[{index}].name": adapter.name})
            refuse_unprintable(**{f"adapters[{index}].servedName": adapter.worker_name})
            if adapter.name in taken:
                raise ValueError(
                    f"adapters[{index}].name is {adapter.name!r}; that name stands here twice"
                )
            taken.add(adapter.name)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that clients may send for the model itself, its own first."""
        return (self.name, *self.aliases)

    @property
    def every_name(self) -> tuple[str, ...]:
        """Those, and its adapters'."""
        return (*self.names, *(adapter.name for adapter in self.adapters))

    @property
    def worker_names(self) -> tuple[str, ...]:
        """What a worker may call the model it serves."""
        return self.names if self.served_name is None else (self.served_name,)


class HeaderMatch(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Requests with a header."""

    name: Annotated[HeaderName, Meta(description="The header's name, in any case.")]
    value: Annotated[
        Annotated[str, Meta(min_length=1, max_length=256)] | None,
        Meta(description="The value it must have, exactly. Default: any."),
    ] = None

    def __post_init__(self) -> None:
        """Refuse what no header can hold."""
        if self.value is not None and not (self.value.isascii() and self.value.isprintable()):
            raise ValueError(f"value is {self.value!r}; expected printable ASCII characters")


class Traffic(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The backend's share of the requests for a name that several backends serve."""

    weight: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="Share of the requests among the backends of the same priority that can "
            "take them: 1 beside 9 is a tenth. 0: none but those with `header`. Default: 1.",
        ),
    ] = 1
    priority: Annotated[
        int,
        Meta(
            ge=0,
            le=15,
            description="Lower first: backends of the next priority get requests only while no "
            "backend before has a worker that can be used, or all their queues are full. "
            "Default: 0.",
        ),
    ] = 0
    header: Annotated[
        HeaderMatch | None,
        Meta(
            description="Requests with this header come here, whatever weights and priorities say, "
            "as long as the backend can take them. Default: none do."
        ),
    ] = None


def refuse_unprintable(**named: str) -> None:
    """Raise if one of the words holds whitespace or what cannot be shown."""
    for path, word in named.items():
        if not word.isprintable() or any(letter.isspace() for letter in word):
            raise ValueError(f"{path} is {word!r}; expected one word of printable characters")
