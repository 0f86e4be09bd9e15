"""A server's end and its log -> one cause, one sentence, one piece of advice, and whether a retry helps."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

from draftmill.serving.ending import Ending
from draftmill.serving.folder import Kind
from draftmill.serving.logtext import LogText, kv_capacity_in, parse_log, read_log
from draftmill.serving.rules import ECHO_EXCEPTION, KILLED, RULES, TERMINATED, Rule

_LONGEST = 300
_SHOWN_LINES = 3
_USUAL_ANSWER = 8192
"""Tokens of one long answer: a KV cache below this is of no use to anybody."""


@dataclass(frozen=True)
class Diagnosis:
    """`sentence` says what happened, `advice` what to do; `kind` says whether a retry can help."""

    cause: str
    sentence: str
    advice: str
    kind: Kind

    def __str__(self) -> str:
        return f"{self.sentence}; {self.advice}" if self.advice else self.sentence


def diagnose(log: Path, ending: Ending | None = None) -> Diagnosis:
    """Why the server ended, from its log and how it was seen to end. `ending` is None where only the log is at hand."""
    return diagnose_text(read_log(log), ending)


def diagnose_text(text: str, ending: Ending | None = None) -> Diagnosis:
    """`diagnose`, for a log that has been read.

    What was seen from outside and needs no log comes first, then the rules, then the last exception that is a cause, then mere echoes
    of another process's end, then the last lines.
    """
    seen = _seen(ending)
    if seen:
        return seen
    log = parse_log(text)
    return (
        _by_rules(log, echoes=False)
        or _killed(log, ending)
        or _by_exception(log)
        or _by_rules(log, echoes=True)
        or (_small_cache(text) if ending is None else None)
        or _by_ending(log, ending)
    )


def _seen(ending: Ending | None) -> Diagnosis | None:
    """What the supervisor found out by itself."""
    if ending is None:
        return None
    if ending.kind == "too_small":
        advice = "raise memory_fraction, use a smaller KV type or more GPUs, or lower min_kv_tokens if so little is meant"
        return Diagnosis("kv_too_small", ending.why, advice, "permanent")
    if ending.kind == "wrong_model":
        return Diagnosis("wrong_model", ending.why, "look at model_path in the server profile", "permanent")
    if ending.kind == "port_taken":
        return Diagnosis("port_in_use", ending.why, "stop it, or give the server profile another port", "temporary")
    return None


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " …"


def _of_rule(rule: Rule, found: str) -> Diagnosis:
    return Diagnosis(rule.cause, f"{rule.what}: {_shorten(found)}", rule.advice, rule.kind)


def _by_rules(log: LogText, *, echoes: bool) -> Diagnosis | None:
    complaints = log.complaints()
    for rule in RULES:
        if rule.echo == echoes and rule.when(log):
            found = _matching(rule, log, complaints)
            if found:
                return _of_rule(rule, found)
    return None


def _matching(rule: Rule, log: LogText, complaints: list[str]) -> str | None:
    """The last exception, else the last complaining line, that the rule knows."""
    lines = complaints[::-1] if rule.in_lines else []
    for text in [exception.text for exception in reversed(log.exceptions)] + lines:
        if rule.pattern.search(text):
            return text
    return None


def _killed(log: LogText, ending: Ending | None) -> Diagnosis | None:
    code = ending.exit_code if ending else None
    if code == -signal.SIGKILL:
        return _of_rule(KILLED, "SIGKILL")
    own = [exception for exception in log.exceptions if not ECHO_EXCEPTION.search(exception.text)]
    line = None if own else _matching(KILLED, log, log.complaints())
    if line:
        return _of_rule(KILLED, line)
    told = _matching(TERMINATED, log, log.meaningful(len(log.lines)))
    if told and (code in (0, -signal.SIGTERM) or ending is None) and not own:
        return _of_rule(TERMINATED, told)
    return None


def _by_exception(log: LogText) -> Diagnosis | None:
    """The last exception that is a cause: not the echo of another process's end, however many of those follow it."""
    echoes = [rule.pattern for rule in RULES if rule.echo]
    own = [
        exception
        for exception in log.exceptions
        if not ECHO_EXCEPTION.search(exception.text) and not any(pattern.search(exception.text) for pattern in echoes)
    ]
    if not own:
        return None
    sentence = f"SGLang failed with {_shorten(own[-1].text)}"
    return Diagnosis("exception", sentence, "the server log has the whole traceback", "temporary")


def _small_cache(text: str) -> Diagnosis | None:
    size = kv_capacity_in(text)
    if size is None or size >= _USUAL_ANSWER:
        return None
    return _seen(Ending("too_small", f"its KV cache holds {size:,} tokens, less than one long answer"))


def _by_ending(log: LogText, ending: Ending | None) -> Diagnosis:
    lines = " | ".join(_shorten(line) for line in log.meaningful(_SHOWN_LINES))
    said = f"its log ends: {lines}" if lines else "its log is empty"
    if ending is None:
        return Diagnosis("none", f"the log shows no fault; {said}", "", "temporary")
    if ending.kind in ("silent", "wedged"):
        advice = "it was ended; where it comes again, look at the GPUs with `nvidia-smi` and at the server log"
        return Diagnosis(ending.kind, f"the server {ending.why}; {said}", advice, "temporary")
    return Diagnosis("died", f"the server ended by itself ({ending.why}); {said}", "see the server log", "temporary")
