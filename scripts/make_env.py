"""Write .env for docker-compose.yaml: .env.example with every empty secret filled in, mode 0600. An existing .env is left as it is."""

from __future__ import annotations

import base64
import os
import secrets
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
MAKERS = {
    "POSTGRES_PASSWORD": lambda: secrets.token_hex(24),
    "FERNET_KEY": lambda: base64.urlsafe_b64encode(os.urandom(32)).decode(),
    "JWT_SECRET": lambda: secrets.token_hex(48),
    "API_SECRET_KEY": lambda: secrets.token_hex(32),
    "ADMIN_PASSWORD": lambda: secrets.token_urlsafe(18),
}


def fill(template: str) -> str:
    """The template with a fresh value behind each known key that has none."""
    lines = []
    for line in template.splitlines():
        key, equals, value = line.partition("=")
        lines.append(f"{key}={MAKERS[key]()}" if equals and not value and key in MAKERS else line)
    return "\n".join(lines) + "\n"


def main() -> int:
    """Exit code 0 where .env is there afterwards."""
    target = PROJECT / ".env"
    text = fill((PROJECT / ".env.example").read_text(encoding="utf-8"))
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        sys.stdout.write(".env is there already and was left as it is.\n")
        return 0
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
    sys.stdout.write("Wrote .env (mode 0600) with fresh secrets; now add AIRFLOW_CONN_GPU_HOST to it.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
