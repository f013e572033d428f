"""What becomes of each field of SGLang's own API, and of tokenize and detokenize."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sglr_dataplane.api.schema.fields import (
    CHAT_FIELDS,
    NO_FIELD,
    NOT_RETURNED,
    OWN,
    Field,
    refused,
)

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
        "token_ids_logprob": refused("use top_logprobs_num", []),
        "rid": refused("send the header x-request-id"),
        "input_embeds": refused("send text or input_ids"),
        "image_data": refused("this backend reads text only", []),
        "video_data": refused("this backend reads text only", []),
        "audio_data": refused("this backend reads text only", []),
        "modalities": refused("this backend reads text only", ["text"], []),
        "session_params": refused(NO_FIELD, {}),
        "lora_path": refused("name the adapter as the model"),
        "lora_id": refused(OWN),
        "custom_logit_processor": refused(NO_FIELD),
        "return_hidden_states": refused(NOT_RETURNED, False),
        "return_routed_experts": refused(NOT_RETURNED, False),
        "background": refused("there is nothing to ask for the answer later", False),
        "priority": refused(NO_FIELD, 0),
        "extra_key": refused(NO_FIELD),
        "bootstrap_host": refused(OWN),
        "bootstrap_port": refused(OWN),
        "bootstrap_room": refused(OWN),
        "data_parallel_rank": refused(OWN),
        "routed_dp_rank": refused(OWN),
        "require_reasoning": refused(OWN, False),
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
        "return_token_strs": refused("ask /v1/detokenize", False),
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
        "spaces_between_special_tokens": refused("nothing is put between tokens", True),
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
        "min_new_tokens": Field("honoured", "0 to the maximum; until then no stop string counts."),
        "json_schema": Field("honoured", "A grammar; only one may be given."),
        "regex": Field("honoured", "A grammar."),
        "ebnf": Field("honoured", "A grammar."),
        "structural_tag": Field("honoured", "A grammar."),
        "skip_special_tokens": Field("honoured", "false: control tokens are shown."),
        "sampling_seed": CHAT_FIELDS["seed"],
        "spaces_between_special_tokens": Field("no effect", "Nothing is put between tokens."),
        "stop_regex": refused("use stop or regex", []),
        "custom_params": refused(NO_FIELD, {}),
        "stream_interval": refused(OWN, 1),
    }
)
"""Every entry of ``sampling_params`` that is known, by name."""
