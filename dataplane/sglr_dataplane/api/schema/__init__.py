"""Requests as they are sent: decoding them is checking them."""

from sglr_dataplane.api.schema.chat import ChatRequest, decode_chat
from sglr_dataplane.api.schema.fields import CHAT_FIELDS, TEMPLATE_KWARGS, Field

__all__ = ["CHAT_FIELDS", "TEMPLATE_KWARGS", "ChatRequest", "Field", "decode_chat"]
