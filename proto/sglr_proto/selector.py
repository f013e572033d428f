"""Label selectors, as ``metav1.LabelSelector`` has them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta


class SelectorOperator(enum.StrEnum):
    """How a label is compared, as in Kubernetes."""

    IN = "In"
    """Its value is one of those listed."""
    NOT_IN = "NotIn"
    """Its value is none of those listed, or it is absent."""
    EXISTS = "Exists"
    """It is there, with any value."""
    DOES_NOT_EXIST = "DoesNotExist"
    """It is absent."""


LabelKey = Annotated[str, Meta(min_length=1, max_length=317)]
"""A name of at most 63 characters behind a DNS name of at most 253 and a slash."""

LabelValue = Annotated[str, Meta(max_length=63)]


class LabelRequirement(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One condition on one label."""

    key: Annotated[LabelKey, Meta(description="The label.")]
    operator: Annotated[SelectorOperator, Meta(description="How its value is compared.")]
    values: Annotated[
        tuple[LabelValue, ...],
        Meta(
            max_length=64,
            description="What it is compared with: at least one value for In and NotIn, none "
            "for Exists and DoesNotExist. Default: none.",
        ),
    ] = ()

    def __post_init__(self) -> None:
        """Refuse values where none are compared, and none where some are."""
        compares = self.operator in {SelectorOperator.IN, SelectorOperator.NOT_IN}
        if compares != bool(self.values):
            wanted = "at least one" if compares else "none"
            raise ValueError(f"values has {len(self.values)}; {self.operator} takes {wanted}")

    def admits(self, labels: Mapping[str, str]) -> bool:
        """Return whether *labels* meet this condition."""
        if self.operator is SelectorOperator.EXISTS:
            return self.key in labels
        if self.operator is SelectorOperator.DOES_NOT_EXIST:
            return self.key not in labels
        is_listed = labels.get(self.key) in self.values
        return is_listed if self.operator is SelectorOperator.IN else not is_listed


class LabelSelector(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which pods are meant; every condition must hold."""

    match_labels: Annotated[
        dict[LabelKey, LabelValue],
        Meta(max_length=32, description="Labels with exactly these values. Default: none."),
    ] = {}
    match_expressions: Annotated[
        tuple[LabelRequirement, ...],
        Meta(max_length=16, description="Conditions on labels. Default: none."),
    ] = ()

    def __post_init__(self) -> None:
        """Refuse a selector that every pod of the namespace would match."""
        if not self.match_labels and not self.match_expressions:
            raise ValueError(
                "matchLabels and matchExpressions are both empty, and every pod would match; "
                "expected at least one condition"
            )

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object with *labels* is selected."""
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            requirement.admits(labels) for requirement in self.match_expressions
        )
