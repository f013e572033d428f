"""Gemma 4 and FunctionGemma: calls with bare keys and marked strings."""

from __future__ import annotations

from sglr_dataplane.output.bodies.braces import BraceCalls
from sglr_dataplane.output.families.declare import ReasoningFormat, ToolFormat
from sglr_dataplane.output.grammar import Opener

TOOLS = (
    ToolFormat(
        "gemma4",
        (Opener("<|tool_call>", BraceCalls('<|"|>', ("<tool_call|>",))),),
        drops=("<|tool_response>",),
    ),
    ToolFormat(
        "functiongemma",
        (Opener("<start_function_call>", BraceCalls("<escape>", ("<end_function_call>",))),),
        aliases=("function_gemma",),
        drops=("<start_function_response>",),
    ),
)
REASONING = (ReasoningFormat("gemma4", ("<|channel>thought\n",), ("<channel|>",)),)
