"""Checks of the messages that their types alone do not make."""

from __future__ import annotations

from collections.abc import Sequence

from sglr_dataplane.api.schema.refusals import invalid, missing
from sglr_dataplane.prompt.conversation import ROLES, ContentPart, Message, ToolCall
from sglr_dataplane.prompt.ranges import shown


def check_messages(messages: Sequence[Message]) -> None:
    """Refuse messages that no template could show to a model as they are meant.

    Raises:
        InvalidRequestError: There are none, or one has an unknown role, parts that are no text,
            or lacks what its role needs.
    """
    if not messages:
        raise invalid("messages", "expected at least one message", "empty_array")
    for at, message in enumerate(messages):
        is_text = isinstance(message.content, str) and message.role in ROLES
        if not is_text or message.tools or message.tool_calls:
            _check(message, f"messages[{at}]")


def _check(message: Message, path: str) -> None:
    if message.role not in ROLES:
        raise invalid(
            f"{path}.role", f"expected one of {', '.join(ROLES)}, but got {shown(message.role)}"
        )
    if message.content is None and message.role == "user":
        raise missing(f"{path}.content")
    if isinstance(message.content, list):
        for at, part in enumerate(message.content):
            _check_part(part, f"{path}.content[{at}]")
    if message.tools:
        raise invalid(f"{path}.tools", "tools are declared by the request, not by a message")
    for at, call in enumerate(message.tool_calls or ()):
        _check_call(call, f"{path}.tool_calls[{at}]")


def _check_part(part: ContentPart, path: str) -> None:
    if part.type != "text":
        raise invalid(
            f"{path}.type",
            f"content of type {shown(part.type)} is not served by this backend; expected 'text'",
        )
    if part.text is None:
        raise missing(f"{path}.text")


def _check_call(call: ToolCall, path: str) -> None:
    if call.type not in (None, "function"):
        raise invalid(
            f"{path}.type", f"calls of type {shown(call.type)} are not served; expected 'function'"
        )
