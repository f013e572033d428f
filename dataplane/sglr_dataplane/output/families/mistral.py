"""Mistral: an array after its marker up to tokenizer v7, name and arguments from v11 on."""

from __future__ import annotations

from sglr_dataplane.output.bodies.headed import HeadedCalls
from sglr_dataplane.output.call_tags import CallTag
from sglr_dataplane.output.families.declare import ReasoningFormat, ToolFormat
from sglr_dataplane.output.grammar import Opener

_CALLS = HeadedCalls(
    opens=("[TOOL_CALLS]",), ends=("[ARGS]",), id_marker="[CALL_ID]", begun=True, array=True
)

_NAMED = CallTag(("[TOOL_CALLS]{name}[ARGS]",), "", trigger="[TOOL_CALLS]", token="[ARGS]")  # noqa: S106  # a marker
_ARRAY = CallTag(
    ('{"name": "{name}", "arguments": ',),
    "}",
    opens="[TOOL_CALLS] [",
    closes="]",
    separator=", ",
)

TOOLS = (
    ToolFormat(
        "mistral",
        (Opener("[TOOL_CALLS]", _CALLS),),
        aliases=("mistral_v13",),
        tags=(_NAMED, _ARRAY),
        ids="mistral",
    ),
)
REASONING = (ReasoningFormat("mistral", ("[THINK]",), ("[/THINK]",)),)
