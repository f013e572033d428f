"""What becomes of each field of the APIs that are told in chat completions' words."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sglr_dataplane.api.schema.fields import CHAT_FIELDS, Field, refused

MESSAGES_FIELDS: Mapping[str, Field] = MappingProxyType(
    {
        "model": Field("honoured", "Name or alias of a backend."),
        "messages": Field(
            "honoured",
            "Turns of text, tool_use, tool_result and thinking; a last turn of the assistant's is "
            "gone on with.",
        ),
        "max_tokens": Field("honoured", "At least 1; required."),
        "system": Field("honoured", "A text, or blocks of text."),
        "stop_sequences": Field("honoured", "Up to 32, none empty."),
        "stream": Field("honoured", "Anthropic's events."),
        "temperature": Field("honoured", "0 to 2."),
        "top_k": Field("honoured", "-1, or at least 1; 0 means -1."),
        "top_p": Field("honoured", "0 to 1; 0 is greedy."),
        "tools": Field("honoured", "The client's own; cache_control is ignored."),
        "tool_choice": Field("honoured", "auto, any, tool or none."),
        "thinking": Field("honoured", "type; unset: disabled. budget_tokens has no effect."),
        "output_config": Field("honoured", "effort, and format of type json_schema."),
        "metadata": Field("no effect", "Nothing is kept of it."),
        "service_tier": Field("no effect", "There is one tier."),
        "cache_control": Field("no effect", "Prefix caches work without it."),
        "context_management": Field("no effect", "Messages are never cut."),
        "container": refused("nothing runs here"),
        "mcp_servers": refused("nothing is called from here", []),
    }
)
"""Every field of ``POST /v1/messages`` that is known, by name."""

RESPONSES_FIELDS: Mapping[str, Field] = MappingProxyType(
    {
        "model": Field("honoured", "Name or alias of a backend."),
        "input": Field(
            "honoured",
            "A text, or items: message (text parts), function_call, function_call_output and "
            "reasoning.",
        ),
        "instructions": Field("honoured", "The first system message."),
        "tools": Field("honoured", "Functions only."),
        "tool_choice": Field("honoured", "none, auto, required, a function, or allowed_tools."),
        "parallel_tool_calls": CHAT_FIELDS["parallel_tool_calls"],
        "text": Field("honoured", "format: text, json_object or json_schema."),
        "reasoning": Field("honoured", "effort; a summary is never written."),
        "max_output_tokens": Field("honoured", "At least 1; unset: up to the context's end."),
        "temperature": CHAT_FIELDS["temperature"],
        "top_p": CHAT_FIELDS["top_p"],
        "top_logprobs": Field("honoured", "0 to 20."),
        "include": Field("honoured", "message.output_text.logprobs; the rest is never there."),
        "stream": Field("honoured", "OpenAI's events, without [DONE]."),
        "metadata": Field("honoured", "Repeated in the response; nothing is kept of it."),
        "store": Field("no effect", "Nothing is stored; the response says store: false."),
        "truncation": Field("no effect", "Prompts are never cut."),
        "user": CHAT_FIELDS["user"],
        "safety_identifier": CHAT_FIELDS["safety_identifier"],
        "service_tier": CHAT_FIELDS["service_tier"],
        "prompt_cache_key": CHAT_FIELDS["prompt_cache_key"],
        "prompt_cache_retention": CHAT_FIELDS["prompt_cache_retention"],
        "stream_options": Field("no effect", "Nothing is obfuscated."),
        "max_tool_calls": Field("no effect", "No tool runs here."),
        "previous_response_id": refused("nothing is stored here; send the whole conversation"),
        "conversation": refused("nothing is stored here; send the whole conversation"),
        "background": refused("there is nothing to ask for the answer later", False),
        "prompt": refused("there are no stored prompts here"),
    }
)
"""Every field of ``POST /v1/responses`` that is known, by name."""
