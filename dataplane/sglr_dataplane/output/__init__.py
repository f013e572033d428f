"""From token ids to what the client learns: text, reasoning, tool calls, finish."""
