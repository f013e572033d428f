"""What becomes of each field of a chat completion request: honoured, refused, or without effect.

The one table of it: refused fields are decoded from here, the documentation is checked against it,
and a field that is not here is unknown and ignored, as OpenAI's own servers do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

Fate = Literal["honoured", "refused", "no effect"]


@dataclass(frozen=True, slots=True)
class Field:
    """What becomes of one field."""

    fate: Fate
    note: str = ""
    """For the documentation; of a refused field, the sentence that the client reads."""
    neutral: tuple[Any, ...] = ()
    """Values of a refused field that ask for nothing and are accepted; null always is."""


def _refused(note: str, *neutral: Any) -> Field:
    return Field("refused", note, neutral)


_HONOURED = {
    "model": "Name or alias of a backend.",
    "messages": "Roles system, developer, user, assistant, tool and function; content as text.",
    "temperature": "0 to 2.",
    "top_p": "0 to 1; 0 is greedy.",
    "top_k": "-1, or at least 1; 0 means -1.",
    "min_p": "0 to 1.",
    "frequency_penalty": "-2 to 2.",
    "presence_penalty": "-2 to 2.",
    "repetition_penalty": "0.01 to 2.",
    "max_completion_tokens": "At least 1; unset: up to the context's end.",
    "max_tokens": "The deprecated name of max_completion_tokens, which wins.",
    "min_tokens": "0 to the maximum.",
    "n": "1 to 128.",
    "stop": "A string or up to 32, none empty.",
    "stop_token_ids": "Ids of the model's vocabulary.",
    "no_stop_trim": "Keeps the matched stop in the text.",
    "include_stop_str_in_output": "Another name of no_stop_trim.",
    "ignore_eos": "Goes on after the model's end token.",
    "logit_bias": "Token ids to -100 to 100.",
    "stream": "Server-sent events.",
    "stream_options": "include_usage and continuous_usage_stats; only with stream.",
    "logprobs": "One entry for each generated token, markup and end token included.",
    "top_logprobs": "0 to 20; only with logprobs.",
    "tools": "Functions; their names must differ.",
    "tool_choice": "none, auto, required, a function, or allowed_tools.",
    "parallel_tool_calls": "false: at most one call where a call is required.",
    "functions": "The deprecated form of tools.",
    "function_call": "The deprecated form of tool_choice.",
    "response_format": "text, json_object, json_schema or structural_tag.",
    "regex": "A grammar, SGLang's name.",
    "ebnf": "A grammar, SGLang's name.",
    "guided_json": "A grammar, vLLM's former name.",
    "guided_regex": "A grammar, vLLM's former name.",
    "guided_grammar": "A grammar, vLLM's former name.",
    "guided_choice": "A grammar, vLLM's former name.",
    "structured_outputs": "A grammar, vLLM's name.",
    "chat_template_kwargs": "Only the names that are listed in the documentation.",
    "reasoning_effort": "For the template; 'none' switches thinking off.",
    "reasoning": "effort and enabled.",
    "thinking": "type enabled, disabled or adaptive.",
    "separate_reasoning": "false: thoughts stay in the content.",
    "stream_reasoning": "false: a stream has the thoughts in one piece, when they are complete.",
    "include_reasoning": "false: thoughts are left out of the answer.",
    "skip_special_tokens": "false: control tokens in the content are shown.",
    "continue_final_message": "The model goes on writing the last message.",
    "add_generation_prompt": "false: the prompt ends after the last message.",
}

_NO_EFFECT = {
    "seed": "The worker's protocol has no field for it; answers carry a warning header.",
    "user": "Nothing is kept of it.",
    "metadata": "Nothing is kept of it.",
    "safety_identifier": "Nothing is kept of it.",
    "service_tier": "There is one tier.",
    "verbosity": "No model served here knows it.",
    "prompt_cache_key": "Prefix caches work without it.",
    "prompt_cache_retention": "The worker decides.",
}

_NOT_YET = "this router does not return it"
_NO_FIELD = "the worker's protocol has no field for it"
_OWN = "the router decides that itself"

_REFUSED = {
    "prompt_logprobs": _refused(_NOT_YET),
    "echo": _refused(_NOT_YET, False),
    "return_token_ids": _refused(_NOT_YET, False),
    "return_prompt_token_ids": _refused(_NOT_YET, False),
    "return_tokens_as_token_ids": _refused(_NOT_YET, False),
    "return_hidden_states": _refused(_NOT_YET, False),
    "return_routed_experts": _refused(_NOT_YET, False),
    "return_cached_tokens_details": _refused(_NOT_YET, False),
    "return_spec_tokens_details": _refused(_NOT_YET, False),
    "return_meta_info": _refused(_NOT_YET, False),
    "return_input_ids_in_sglext": _refused(_NOT_YET, False),
    "return_output_ids_in_sglext": _refused(_NOT_YET, False),
    "return_sampling_mask": _refused(_NOT_YET, False),
    "return_flat_raw_output_top_logprobs": _refused(_NOT_YET, False),
    "sampling_logprobs_mode": _refused(_NOT_YET),
    "spaces_between_special_tokens": _refused("control tokens never appear in answers", True),
    "store": _refused("nothing is stored here", False),
    "modalities": _refused("this backend answers with text only", ["text"]),
    "audio": _refused("this backend answers with text only"),
    "prediction": _refused(_NO_FIELD),
    "web_search_options": _refused("there is no web search here"),
    "moderation": _refused("there is no moderation here"),
    "best_of": _refused("use n", 1),
    "use_beam_search": _refused(_NO_FIELD, False),
    "length_penalty": _refused(_NO_FIELD, 1),
    "early_stopping": _refused(_NO_FIELD, False),
    "stop_regex": _refused("use stop or regex", []),
    "bad_words": _refused("use logit_bias", []),
    "allowed_token_ids": _refused("use a grammar", []),
    "truncate_prompt_tokens": _refused("prompts are never cut"),
    "custom_logit_processor": _refused(_NO_FIELD),
    "custom_params": _refused(_NO_FIELD, {}),
    "logits_processors": _refused(_NO_FIELD, []),
    "watermark": _refused(_NO_FIELD),
    "thinking_token_budget": _refused(_NO_FIELD),
    "max_thinking_tokens": _refused(_NO_FIELD),
    "lora_path": _refused("name the adapter as the model"),
    "input_ids": _refused("send messages"),
    "session_params": _refused(_NO_FIELD, {}),
    "session_id": _refused(_NO_FIELD),
    "task": _refused(_NO_FIELD),
    "rid": _refused("send the header x-request-id"),
    "request_id": _refused("send the header x-request-id"),
    "priority": _refused(_NO_FIELD, 0),
    "cache_salt": _refused(_NO_FIELD),
    "extra_key": _refused(_NO_FIELD),
    "kv_transfer_params": _refused(_OWN),
    "vllm_xargs": _refused(_NO_FIELD),
    "bootstrap_host": _refused(_OWN),
    "bootstrap_port": _refused(_OWN),
    "bootstrap_room": _refused(_OWN),
    "routed_dp_rank": _refused(_OWN),
    "data_parallel_rank": _refused(_OWN),
    "disagg_prefill_dp_rank": _refused(_OWN),
    "max_dynamic_patch": _refused("images are not served by this backend"),
    "min_dynamic_patch": _refused("images are not served by this backend"),
    "images_config": _refused("images are not served by this backend"),
    "video_config": _refused("video is not served by this backend"),
    "use_audio_in_video": _refused("video is not served by this backend", False),
    "mm_processor_kwargs": _refused("images are not served by this backend"),
    "media_io_kwargs": _refused("images are not served by this backend"),
    "chat_template": _refused("the template is the backend's; a request cannot replace it"),
    "documents": _refused("put documents into the messages", []),
    "add_special_tokens": _refused("the template writes special tokens itself", False),
}

CHAT_FIELDS: Mapping[str, Field] = MappingProxyType(
    {name: Field("honoured", note) for name, note in _HONOURED.items()}
    | {name: Field("no effect", note) for name, note in _NO_EFFECT.items()}
    | _REFUSED
)
"""Every field of ``POST /v1/chat/completions`` that is known, by name."""

_ONLY_CHAT = frozenset(
    {
        "messages",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "functions",
        "function_call",
        "chat_template_kwargs",
        "reasoning_effort",
        "reasoning",
        "thinking",
        "separate_reasoning",
        "stream_reasoning",
        "include_reasoning",
        "continue_final_message",
        "add_generation_prompt",
        "top_logprobs",
        "input_ids",
        "documents",
        "echo",
        "best_of",
    }
)

COMPLETION_FIELDS: Mapping[str, Field] = MappingProxyType(
    {name: field for name, field in CHAT_FIELDS.items() if name not in _ONLY_CHAT}
    | {
        "prompt": Field(
            "honoured", "A text, a list of texts, token ids, or a list of lists of them."
        ),
        "max_tokens": Field("honoured", "At least 0; unset: 16."),
        "logprobs": Field("honoured", "0 to 20: how many alternatives are told of each token."),
        "echo": Field("honoured", "The prompt comes first, its log probabilities too."),
        "best_of": Field("honoured", "Only the value of n: candidates are not ranked."),
        "suffix": _refused("text is only written after the prompt", ""),
        "prompt_embeds": _refused(_NO_FIELD),
        "add_special_tokens": _refused("texts get the tokens that the model wants", True),
    }
)
"""Every field of ``POST /v1/completions`` that is known, by name."""

NATIVE_FIELDS: Mapping[str, Field] = MappingProxyType(
    {
        "model": Field(
            "honoured", "Name or alias of a backend; only needed where there are several."
        ),
        "text": Field("honoured", "A text, or a list of texts."),
        "input_ids": Field("honoured", "Token ids, or a list of lists of them."),
        "sampling_params": Field("honoured", "See the next table."),
        "stream": Field("honoured", "Server-sent events; each has what is new, not all so far."),
        "return_logprob": Field("honoured", "Log probabilities of the answer's tokens."),
        "logprob_start_len": Field("honoured", "From where the prompt's are told; -1: nowhere."),
        "top_logprobs_num": Field("honoured", "0 to 128."),
        "return_text_in_logprobs": Field("honoured", "Tokens are named by their texts too."),
        "log_metrics": Field("no effect", "The worker always counts."),
        "token_ids_logprob": _refused("use top_logprobs_num", []),
        "rid": _refused("send the header x-request-id"),
        "input_embeds": _refused("send text or input_ids"),
        "image_data": _refused("this backend reads text only", []),
        "video_data": _refused("this backend reads text only", []),
        "audio_data": _refused("this backend reads text only", []),
        "modalities": _refused("this backend reads text only", ["text"], []),
        "session_params": _refused(_NO_FIELD, {}),
        "lora_path": _refused("name the adapter as the model"),
        "lora_id": _refused(_OWN),
        "custom_logit_processor": _refused(_NO_FIELD),
        "return_hidden_states": _refused(_NOT_YET, False),
        "return_routed_experts": _refused(_NOT_YET, False),
        "background": _refused("there is nothing to ask for the answer later", False),
        "priority": _refused(_NO_FIELD, 0),
        "extra_key": _refused(_NO_FIELD),
        "bootstrap_host": _refused(_OWN),
        "bootstrap_port": _refused(_OWN),
        "bootstrap_room": _refused(_OWN),
        "data_parallel_rank": _refused(_OWN),
        "routed_dp_rank": _refused(_OWN),
        "require_reasoning": _refused(_OWN, False),
    }
)
"""Every field of ``POST /generate`` that is known, by name."""

TOKENIZE_FIELDS: Mapping[str, Field] = MappingProxyType(
    {
        name: field
        for name, field in CHAT_FIELDS.items()
        if name in ("messages", "tools", "chat_template_kwargs", "chat_template")
    }
    | {
        "model": Field(
            "honoured", "Name or alias of a backend; only needed where there are several."
        ),
        "prompt": Field("honoured", "A text, or a list of texts."),
        "messages": Field(
            "honoured", "A chat, with the other fields of chat completions; needs model."
        ),
        "add_special_tokens": Field("honoured", "false: without the tokens that begin a prompt."),
        "return_token_strs": _refused("ask /v1/detokenize", False),
    }
)
"""Every field of ``POST /v1/tokenize`` that is known, by name."""

DETOKENIZE_FIELDS: Mapping[str, Field] = MappingProxyType(
    {
        "model": Field(
            "honoured", "Name or alias of a backend; only needed where there are several."
        ),
        "tokens": Field("honoured", "Token ids, or a list of lists of them."),
        "skip_special_tokens": Field("honoured", "false: control tokens are shown."),
        "spaces_between_special_tokens": _refused("nothing is put between tokens", True),
    }
)
"""Every field of ``POST /v1/detokenize`` that is known, by name."""

NATIVE_SAMPLING_FIELDS: Mapping[str, Field] = MappingProxyType(
    {
        name: CHAT_FIELDS[name]
        for name in (
            "temperature",
            "top_p",
            "top_k",
            "min_p",
            "frequency_penalty",
            "presence_penalty",
            "repetition_penalty",
            "stop",
            "stop_token_ids",
            "ignore_eos",
            "no_stop_trim",
            "n",
            "logit_bias",
        )
    }
    | {
        "max_new_tokens": Field("honoured", "At least 0; unset: 128."),
        "min_new_tokens": Field("honoured", "0 to the maximum."),
        "json_schema": Field("honoured", "A grammar; only one may be given."),
        "regex": Field("honoured", "A grammar."),
        "ebnf": Field("honoured", "A grammar."),
        "structural_tag": Field("honoured", "A grammar."),
        "skip_special_tokens": Field("honoured", "false: control tokens are shown."),
        "sampling_seed": CHAT_FIELDS["seed"],
        "spaces_between_special_tokens": Field("no effect", "Nothing is put between tokens."),
        "stop_regex": _refused("use stop or regex", []),
        "custom_params": _refused(_NO_FIELD, {}),
        "stream_interval": _refused(_OWN, 1),
    }
)
"""Every entry of ``sampling_params`` that is known, by name."""

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
        "container": _refused("nothing runs here"),
        "mcp_servers": _refused("nothing is called from here", []),
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
        "previous_response_id": _refused("nothing is stored here; send the whole conversation"),
        "conversation": _refused("nothing is stored here; send the whole conversation"),
        "background": _refused("there is nothing to ask for the answer later", False),
        "prompt": _refused("there are no stored prompts here"),
    }
)
"""Every field of ``POST /v1/responses`` that is known, by name."""

TEMPLATE_KWARGS: Mapping[str, str] = MappingProxyType(
    {
        "enable_thinking": "Qwen, GLM, Nemotron, Gemma: whether to think first.",
        "thinking": "DeepSeek, Kimi, Granite: whether to think first.",
        "reasoning_effort": "gpt-oss and others: low, medium, high.",
        "thinking_budget": "Seed-OSS: tokens for thoughts.",
        "thinking_mode": "Some hybrids: on, off or auto.",
        "low_effort": "Nemotron: short thoughts.",
        "clear_thinking": "GLM: whether earlier thoughts leave the prompt.",
        "preserve_thinking": "Qwen: whether earlier thoughts stay in the prompt.",
        "date_string": "Llama: today's date.",
        "tools_in_user_message": "Llama: where tools are described.",
        "model_identity": "gpt-oss: the first system line.",
    }
)
"""The names in ``chat_template_kwargs`` that reach a template."""
