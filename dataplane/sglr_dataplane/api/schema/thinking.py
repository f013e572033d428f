"""What the template is told: the listed kwargs, and the many ways to ask for thinking."""

from __future__ import annotations

from typing import Any

from sglr_dataplane.api.schema.fields import TEMPLATE_KWARGS
from sglr_dataplane.api.schema.refusals import invalid, mistyped, type_name
from sglr_dataplane.prompt.json_values import is_object
from sglr_dataplane.prompt.ranges import number_in, shown

_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max")
_MAX_EFFORT = 0.99
"""sglang takes a fraction too, for models that know one."""


def template_kwargs_of(kwargs: Any, effort: Any, reasoning: Any, thinking: Any) -> dict[str, Any]:
    """Return what the template is given beside the messages.

    Args:
        kwargs: ``chat_template_kwargs``; what it says wins over the other three.
        effort: ``reasoning_effort``.
        reasoning: ``reasoning``, as OpenRouter has it.
        thinking: ``thinking``, as Anthropic has it.

    Raises:
        InvalidRequestError: One is malformed, or names something a template must not be given.
    """
    own = _listed(kwargs)
    found, toggle = _of_reasoning(reasoning)
    effort = found if effort is None else _effort("reasoning_effort", effort)
    if thinking is not None:
        toggle = _of_thinking(thinking)
    if effort is not None:
        toggle = effort != "none"
    given: dict[str, Any] = {} if effort is None else {"reasoning_effort": effort}
    # sglang@v0.5.23 protocol.py: models look for either name.
    switches = {} if toggle is None else {"thinking": toggle, "enable_thinking": toggle}
    return given | switches | own


def _listed(kwargs: Any) -> dict[str, Any]:
    if kwargs is None:
        return {}
    if not is_object(kwargs):
        raise mistyped("chat_template_kwargs", "an object", kwargs)
    for name, value in kwargs.items():
        param = f"chat_template_kwargs.{name}"
        if name not in TEMPLATE_KWARGS:
            raise invalid(
                param,
                "a request may give a template only " + ", ".join(TEMPLATE_KWARGS),
                "unknown_parameter",
            )
        if value is not None and not isinstance(value, str | bool | int | float):
            raise mistyped(param, "a string, a number or a boolean", value)
    return kwargs


def _effort(param: str, value: Any) -> str | float | None:
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        number_in(value, param, 0, _MAX_EFFORT)
        return float(value)
    if not isinstance(value, str):
        raise mistyped(param, "a string", value)
    if value not in _EFFORTS:
        raise invalid(param, f"expected one of {', '.join(_EFFORTS)}, but got {shown(value)}")
    return value


def _of_reasoning(reasoning: Any) -> tuple[str | float | None, bool | None]:
    if reasoning is None:
        return None, None
    if not is_object(reasoning):
        raise mistyped("reasoning", "an object", reasoning)
    enabled = reasoning.get("enabled")
    if enabled is not None and not isinstance(enabled, bool):
        raise mistyped("reasoning.enabled", "a boolean", enabled)
    if reasoning.get("max_tokens") is not None:
        raise invalid("reasoning.max_tokens", "thoughts have no limit of their own here")
    if reasoning.get("exclude"):
        raise invalid("reasoning.exclude", "thoughts are always returned")
    return _effort("reasoning.effort", reasoning.get("effort")), enabled


def _of_thinking(thinking: Any) -> bool | None:
    if not is_object(thinking):
        raise mistyped("thinking", "an object", thinking)
    if thinking.get("budget_tokens") is not None:
        raise invalid("thinking.budget_tokens", "thoughts have no limit of their own here")
    kind = thinking.get("type")
    if kind == "adaptive":
        return None
    if kind not in ("enabled", "disabled"):
        got = shown(kind) if isinstance(kind, str) else type_name(kind)
        raise invalid(
            "thinking.type", f"expected 'enabled', 'disabled' or 'adaptive', but got {got}"
        )
    return bool(kind == "enabled")
