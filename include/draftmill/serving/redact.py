"""Lines of a server log as people may see them: SGLang prints its arguments, the API key among them, into its own log."""

from __future__ import annotations

import re

_SECRET = re.compile(
    r"""((?:api[-_]key|[a-z]+[-_]token|password|secret|authorization)['"]?\s*[=:]\s*|--(?:admin-)?api-key[ =])"""
    r"""(bearer\s+)?(?:'[^']*'|"[^"]*"|[^\s,'")}\]]+)""",
    re.IGNORECASE,
)
_NAKED = re.compile(r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|[Bb]earer [A-Za-z0-9._~+/-]{16,})")
_LONGEST = 600


def redact(line: str, *secrets: str | None) -> str:
    """`line` without secrets, cut to a readable length. `secrets` are values known to be ones, wherever they stand."""
    for secret in secrets:
        if secret:
            line = line.replace(secret, "***")
    line = _SECRET.sub(lambda match: f"{match[1]}***", line)
    line = _NAKED.sub("***", line)
    return line if len(line) <= _LONGEST else line[:_LONGEST] + " …"
