"""What kind of worker is simulated: its model, its limits and its address."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The command line of a simulated worker, as values; lengths are in tokens."""

    model_name: str = "sim"
    tokenizer: Path | None = None
    """A directory with ``tokenizer.json``; None: the worker knows ids only and echoes them."""
    host: str = "127.0.0.1"
    port: int = 0
    """0: the kernel chooses."""
    context_length: int = 8192
    """The model's window; 8192 is what the figures in the worker's contract were measured with."""
    kv_capacity: int = 65536
    """Tokens the key-value cache holds; GetModelInfo calls this max_context_length, as the real."""
    vocab_size: int | None = None
    """Ids at or above end the process; None: ``config.json``, else the tokenizer's own size."""
    max_running_requests: int = 32
    max_queued_requests: int | None = None
    """None: the queue is never full."""
    kv_events: bool = False
    """Whether SubscribeKvEvents tells of the prefix cache, as with ``--kv-events-config``."""
    page_size: int = 1
    """Tokens of a block of the prefix cache, by which its events count."""
    token_delay: float = 0.0
    """Seconds between two messages of an answer whose script does not say."""
    tool_call_parser: str | None = "qwen25"
    reasoning_parser: str | None = "qwen3"
    adapters: tuple[str, ...] = ()
    """LoRA adapters that it lists, each with an id of its own; without any it has no such list, as
    no known servicer has."""
    thinks: bool = True
    """Whether the model thinks where the prompt leaves it the choice (a template that knows
    ``enable_thinking`` and did not switch it off)."""

    @property
    def max_req_input_len(self) -> int:
        """The length a prompt must stay under: sglang keeps six tokens of the window back."""
        return self.context_length - 6

    def room(self, prompt_tokens: int) -> int:
        """Return how many tokens fit after *prompt_tokens*: 190 after 8000 of 8192, as measured."""
        return max(self.context_length - prompt_tokens - 2, 0)
