"""From chat messages to prompt token ids: tokenizer guard, rendering, order, and the prompts file."""
