"""Requests as they are sent: decoding them is checking them."""

from sglr_dataplane.api.schema.chat import ChatRequest, decode_chat
from sglr_dataplane.api.schema.completions import CompletionRequest, decode_completion
from sglr_dataplane.api.schema.fields import (
    CHAT_FIELDS,
    COMPLETION_FIELDS,
    TEMPLATE_KWARGS,
    Field,
)

__all__ = [
    "CHAT_FIELDS",
    "COMPLETION_FIELDS",
    "TEMPLATE_KWARGS",
    "ChatRequest",
    "CompletionRequest",
    "Field",
    "decode_chat",
    "decode_completion",
]
