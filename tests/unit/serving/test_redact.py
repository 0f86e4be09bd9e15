from __future__ import annotations

import pytest

from draftmill.serving.redact import redact

SECRET = "abcdefghijklmnop1234"


@pytest.mark.parametrize(
    "line",
    [
        f"server_args=ServerArgs(model_path='/m', api_key='{SECRET}', port=1)",
        f"server_args={{'model_path': '/m', 'api_key': '{SECRET}', 'port': 1}}",
        f"launch_command: --model-path /m --api-key {SECRET} --port 1",
        f"--api-key={SECRET}",
        f"Authorization: Bearer {SECRET}",
        f"HF_TOKEN={SECRET}",
        f"sending Bearer {SECRET}",
        f"download with hf_{SECRET}",
    ],
)
def test_secrets_are_taken_out_by_their_names(line: str) -> None:
    assert SECRET not in redact(line)
    assert "***" in redact(line)


def test_known_values_are_taken_out_wherever_they_stand() -> None:
    assert redact(f"x{SECRET}y and {SECRET}", None, SECRET) == "x***y and ***"


def test_what_is_no_secret_stays() -> None:
    line = "Decode batch, #token: 69, token usage: 0.02, cuda graph: False, gen throughput (token/s): 15.93"
    assert redact(line) == line


def test_long_lines_are_cut() -> None:
    assert len(redact("x" * 10_000)) < 700
