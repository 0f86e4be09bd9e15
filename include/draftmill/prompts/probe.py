"""Does the running server tokenize as we do? A wrong tokenizer class on either side gives no error, only worthless tokens.

The server is sent a text with control tokens in it and asked for the log-probabilities of its input, which come with the ids that it
made of the text (SGLang's native API: `return_logprob` with `logprob_start_len` 0 fills `meta_info.input_token_logprobs` with
[log-probability, id, text]).
"""

from __future__ import annotations

from typing import Any

from draftmill.errors import PermanentError

_TIMEOUT_S = 120.0


def make_probe(tokenizer: Any, rendered: str) -> dict[str, Any]:
    """The probe of a prompts' meta file: a rendered prompt, and its ids as a server makes them of text."""
    return {"text": rendered, "input_ids": [int(number) for number in tokenizer(rendered)["input_ids"]]}


def check_server(base_url: str, api_key: str | None, probe: dict[str, Any]) -> bool:
    """Whether the server at `base_url` confirms the ids of `probe`; False where it does not say.

    Raises PermanentError where it makes other ids of the same text. Blocks for one request; what goes wrong on the way to the answer says
    nothing about tokenizers and counts as not said.
    """
    import requests

    body = {
        "text": probe["text"],
        "sampling_params": {"max_new_tokens": 1, "temperature": 0.0},
        "return_logprob": True,
        "logprob_start_len": 0,
    }
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        answer = requests.post(f"{base_url}/generate", json=body, headers=headers, timeout=_TIMEOUT_S)
        found = answer.json()["meta_info"]["input_token_logprobs"] if answer.ok else None
        theirs = [int(entry[1]) for entry in found] if found else None
    except (requests.RequestException, ValueError, KeyError, TypeError, IndexError):
        return False
    if theirs is None:
        return False
    _compare(probe["input_ids"], theirs)
    return True


def _compare(ours: list[int], theirs: list[int]) -> None:
    if ours == theirs:
        return
    place = next((index for index, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), min(len(ours), len(theirs)))
    raise PermanentError(
        f"the server makes {len(theirs)} tokens of the probe text and our tokenizer {len(ours)}; they differ from token {place} on "
        f"({theirs[place : place + 3]} against {ours[place : place + 3]}); set tokenizer_path and trust_remote_code of the server profile "
        "so that both load the model's own tokenizer"
    )
