"""Which conversations are held out of training, decided by id alone: the same on any machine, whatever else is in the corpus."""

from __future__ import annotations

import hashlib


def is_held_out(conversation_id: str, seed: int, fraction: float) -> bool:
    """Whether a conversation belongs to the held-out part.

    It is asked with the id of the conversation, so that all turns of one fall on the same side. A larger fraction keeps what a smaller one
    held out.
    The hash is not the one of the work order: otherwise the first prompts that a budget takes would all be held out, or none.
    """
    digest = hashlib.blake2b(conversation_id.encode(), digest_size=8, key=f"held-out {seed}".encode()).digest()
    return int.from_bytes(digest, "big") < fraction * 2**64
