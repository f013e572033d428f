"""What becomes of each field of OpenAI's two generating APIs: honoured, refused, or without effect.

The one table of it: refused fields are decoded from here, the documentation is checked against it,
and a field that is not here is unknown and ignored, as OpenAI's own servers do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

Fate = Literal["honoured", "refused", "no effect"]


@dataclass(frozen=True, slots=True)
class Field:
    """What becomes of one field."""

    fate: Fate
    note: str = ""
    """For the documentation; of a refused field, the sentence that the client reads."""
    neutral: tuple[Any, ...] = ()
    """Values of a refused field that ask for nothing and are accepted; null always is."""


def refused(note: str, *neutral: Any) -> Field:
    """Return a field that is refused with *note*, unless its value is one of *neutral*."""
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
    "min_tokens": "0 to the maximum; until then no stop string counts.",
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
    "parallel_tool_calls": "false: at most one call, where the model's format has a grammar or a call is required.",
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

NOT_RETURNED: Final = "this router does not return it"
NO_FIELD: Final = "the worker's protocol has no field for it"
OWN: Final = "the router decides that itself"

_REFUSED = {
    "prompt_logprobs": refused(NOT_RETURNED),
    "echo": refused(NOT_RETURNED, False),
    "return_token_ids": refused(NOT_RETURNED, False),
    "return_prompt_token_ids": refused(NOT_RETURNED, False),
    "return_tokens_as_token_ids": refused(NOT_RETURNED, False),
    "return_hidden_states": refused(NOT_RETURNED, False),
    "return_routed_experts": refused(NOT_RETURNED, False),
    "return_cached_tokens_details": refused(NOT_RETURNED, False),
    "return_spec_tokens_details": refused(NOT_RETURNED, False),
    "return_meta_info": refused(NOT_RETURNED, False),
    "return_input_ids_in_sglext": refused(NOT_RETURNED, False),
    "return_output_ids_in_sglext": refused(NOT_RETURNED, False),
    "return_sampling_mask": refused(NOT_RETURNED, False),
    "return_flat_raw_output_top_logprobs": refused(NOT_RETURNED, False),
    "sampling_logprobs_mode": refused(NOT_RETURNED),
    "spaces_between_special_tokens": refused("control tokens never appear in answers", True),
    "store": refused("nothing is stored here", False),
    "modalities": refused("this backend answers with text only", ["text"]),
    "audio": refused("this backend answers with text only"),
    "prediction": refused(NO_FIELD),
    "web_search_options": refused("there is no web search here"),
    "moderation": refused("there is no moderation here"),
    "best_of": refused("use n", 1),
    "use_beam_search": refused(NO_FIELD, False),
    "length_penalty": refused(NO_FIELD, 1),
    "early_stopping": refused(NO_FIELD, False),
    "stop_regex": refused("use stop or regex", []),
    "bad_words": refused("use logit_bias", []),
    "allowed_token_ids": refused("use a grammar", []),
    "truncate_prompt_tokens": refused("prompts are never cut"),
    "custom_logit_processor": refused(NO_FIELD),
    "custom_params": refused(NO_FIELD, {}),
    "logits_processors": refused(NO_FIELD, []),
    "watermark": refused(NO_FIELD),
    "thinking_token_budget": refused(NO_FIELD),
    "max_thinking_tokens": refused(NO_FIELD),
    "lora_path": refused("name the adapter as the model"),
    "input_ids": refused("send messages"),
    "session_params": refused(NO_FIELD, {}),
    "session_id": refused(NO_FIELD),
    "task": refused(NO_FIELD),
    "rid": refused("send the header x-request-id"),
    "request_id": refused("send the header x-request-id"),
    "priority": refused(NO_FIELD, 0),
    "cache_salt": refused(NO_FIELD),
    "extra_key": refused(NO_FIELD),
    "kv_transfer_params": refused(OWN),
    "vllm_xargs": refused(NO_FIELD),
    "bootstrap_host": refused(OWN),
    "bootstrap_port": refused(OWN),
    "bootstrap_room": refused(OWN),
    "routed_dp_rank": refused(OWN),
    "data_parallel_rank": refused(OWN),
    "disagg_prefill_dp_rank": refused(OWN),
    "max_dynamic_patch": refused("images are not served by this backend"),
    "min_dynamic_patch": refused("images are not served by this backend"),
    "images_config": refused("images are not served by this backend"),
    "video_config": refused("video is not served by this backend"),
    "use_audio_in_video": refused("video is not served by this backend", False),
    "mm_processor_kwargs": refused("images are not served by this backend"),
    "media_io_kwargs": refused("images are not served by this backend"),
    "chat_template": refused("the template is the backend's; a request cannot replace it"),
    "documents": refused("put documents into the messages", []),
    "add_special_tokens": refused("the template writes special tokens itself", False),
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
        "suffix": refused("text is only written after the prompt", ""),
        "prompt_embeds": refused(NO_FIELD),
        "add_special_tokens": refused("texts get the tokens that the model wants", True),
    }
)
"""Every field of ``POST /v1/completions`` that is known, by name."""

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
