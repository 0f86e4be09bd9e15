from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from draftmill.cli import FORWARDED, main
from draftmill.files import write_json
from draftmill.jobs.detached import code_root
from draftmill.jobs.step import STEPS
from draftmill.spec.plan import Plan
from tests.plans import make_dataset, make_plan
from tests.unit.jobs.conftest import PROGRAM, Host, eventually, host

__all__ = ["host"]


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    write_json(path, make_plan(make_dataset("alpha"), make_dataset("beta")).model_dump(mode="json"))
    return path


def here(host: Host, plan: Path) -> list[str]:
    return ["--plan", str(plan), "--workspace", str(host.workspace.root)]


def test_help_names_every_verb_once_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    for verb in [*STEPS, "plan", "bundle", *(" ".join(words) for words in FORWARDED)]:
        assert sum(line.startswith(f"  {verb} ") for line in lines) == 2, verb
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("verb", [*STEPS, "plan", "job", "bundle", "run-job"])
def test_every_verb_has_help_of_its_own(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([verb, "--help"])
    assert caught.value.code == 0
    assert f"usage: draftmill {verb}" in capsys.readouterr().out


def test_plan_is_a_table_and_a_plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = ["--campaign", "synth_100k", "--datasets", "B1_glaive,B8_sweagent", "--tokens-per-dataset", "2M"]
    assert main(["plan", *options]) == 0
    table = capsys.readouterr().out
    assert "kimi-k25-bf16" in table
    rows = [line.split() for line in table.splitlines() if line.startswith("B")]
    assert [row[0] for row in rows] == ["B8_sweagent", "B1_glaive"]
    assert rows[1][2] == "2,000,000"
    assert "2 data sets, 4,000,000 completion tokens" in table
    assert main(["plan", *options, "--json"]) == 0
    resolved = Plan.model_validate_json(capsys.readouterr().out)
    assert resolved.names == ["B8_sweagent", "B1_glaive"]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["plan", "--campaign", "synth"], "campaign: 'synth' is not a campaign file"),
        (["plan", "--campaign", "synth_100k", "--datasets", "B1_glaiv"], "did you mean B1_glaive?"),
        (["plan", "--campaign", "synth_100k", "--tokens-per-dataset", "many"], "tokens_per_dataset"),
        (["plan", "--campaign", "synth_100k", "--config", "/no/such/folder"], "/no/such/folder"),
        (["plan", "--plan", "/no/such/plan.json"], "/no/such/plan.json: cannot be read: No such file"),
        (["dance"], "'dance' is no verb"),
        (["prompts"], "'prompts' is no verb"),
        (["dance", "--help"], "'dance --help' is no verb"),
        (["job", "status", "a/b/c/d"], "'a/b/c/d' is no job"),
        (["job", "start", "nowhere/survey", "--workspace", "/nowhere"], "/nowhere/campaigns/nowhere/plan.json: cannot be read"),
    ],
)
def test_a_mistake_is_one_sentence(argv: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 65
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("draftmill: ")
    assert captured.err.count("\n") == 1
    assert words in captured.err


@pytest.mark.parametrize(("word", "verbs"), [("corpus", ["verify"]), ("prompts", ["inspect"]), ("server", ["status", "stop", "diagnose"])])
def test_the_first_word_of_verbs_lists_them(word: str, verbs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word, "--help"]) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [[word, verb] for verb in verbs]


def test_a_plan_cannot_be_changed(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--plan", str(plan), "--tokens-per-dataset", "5", "--server", "x"]) == 65
    assert "--tokens-per-dataset, --server: a plan is resolved already" in capsys.readouterr().err


def test_the_configuration_folder_can_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRAFTMILL_CONFIG", str(tmp_path))
    assert main(["plan", "--campaign", "synth_100k"]) == 65
    assert str(tmp_path) in capsys.readouterr().err


def test_verbs_of_other_rooms_are_handed_on() -> None:
    answer = subprocess.run([sys.executable, "-m", "draftmill", "simulate", "--help"], capture_output=True, check=True, env=source_env())
    assert b"usage:" in answer.stdout


def source_env() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(code_root())}


def test_a_step_by_hand_prints_its_result_alone(host: Host, plan: Path) -> None:
    answer = host.command("quick", *here(host, plan))
    assert answer.returncode == 0
    assert orjson.loads(answer.stdout)["description"] == ""
    assert b"a stray print" in answer.stderr
    assert b"quick work" in answer.stderr


def test_stored_secrets_are_there_by_hand_too(host: Host, plan: Path) -> None:
    write_json(host.workspace.secrets, {"TEST_TOKEN": "stored"}, mode=0o600)
    assert orjson.loads(host.command("quick", *here(host, plan)).stdout)["token"] == "stored"
    own = host.command("quick", *here(host, plan), env=os.environ | {"TEST_TOKEN": "own"})
    assert orjson.loads(own.stdout)["token"] == "own"


def test_all_data_sets_one_after_the_other(host: Host, plan: Path) -> None:
    answer = host.command("generate", *here(host, plan), "--dataset", "all")
    assert orjson.loads(answer.stdout) == {"alpha": {"tokens": 10_000}, "beta": {"tokens": 10_000}}
    one = host.command("generate", *here(host, plan), "--dataset", "beta")
    assert orjson.loads(one.stdout) == {"tokens": 10_000}


@pytest.mark.parametrize(
    ("options", "words"), [([], "name one of alpha, beta"), (["--dataset", "gamma"], "'gamma' is none of alpha, beta")]
)
def test_a_step_of_one_data_set_must_be_told_which(host: Host, plan: Path, options: list[str], words: str) -> None:
    answer = host.command("generate", *here(host, plan), *options)
    assert answer.returncode == 65
    assert words in answer.stderr.decode()


@pytest.mark.parametrize(("kind", "code"), [("permanent", 65), ("temporary", 75), ("unexpected", 75)])
def test_a_failure_by_hand_has_its_code_and_sentence(host: Host, tmp_path: Path, kind: str, code: int) -> None:
    path = tmp_path / "plan.json"
    write_json(path, make_plan(description=kind).model_dump(mode="json"))
    answer = host.command("fail", *here(host, path))
    assert answer.returncode == code
    assert answer.stdout == b""
    assert answer.stderr.decode().splitlines()[-1].startswith("draftmill: ")
    assert (b"Traceback" in answer.stderr) == (kind == "unexpected")


def test_ctrl_c_ends_in_order(host: Host, plan: Path) -> None:
    with subprocess.Popen(
        [*PROGRAM, "nap", *here(host, plan), "--dataset", "all"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr
        assert b"sleeping" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 79
    assert b"stopping in order" in errors
    assert b"alpha: stopped on request" in errors
    assert b"beta" not in errors


def test_by_hand_and_detached_exclude_each_other(host: Host, plan: Path) -> None:
    host.start("nap")
    answer = host.command("nap", *here(host, plan), "--dataset", "alpha")
    assert answer.returncode == 75
    assert f"test/nap/alpha is being run by pid {host.process('nap').pid} already" in answer.stderr.decode()


def test_jobs_by_key(host: Host, plan: Path) -> None:
    root = ["--workspace", str(host.workspace.root)]
    started = host.start("nap")
    eventually(lambda: host.status("nap").progress)
    status = subprocess.run(
        [sys.executable, "-m", "draftmill", "job", "status", "test/nap/alpha", *root], capture_output=True, check=True, env=source_env()
    )
    assert orjson.loads(status.stdout)["pid"] == started.pid
    assert b"sleeping" in status.stderr
    stopped = subprocess.run(
        [sys.executable, "-m", "draftmill", "job", "stop", "test/nap/alpha", *root], capture_output=True, check=True, env=source_env()
    )
    assert orjson.loads(stopped.stdout)["state"] == "stopped"


def read_terminal(terminal: io.RawIOBase) -> Iterator[bytes]:
    """What is shown until the other end is closed, which a terminal reports as EIO."""
    with contextlib.suppress(OSError):
        while piece := terminal.read(65536):
            yield piece


def test_generate_shows_a_bar_on_a_terminal(host: Host, plan: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 100, 0, 0))
    command = [*PROGRAM, "generate", *here(host, plan), "--dataset", "alpha"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        with os.fdopen(ours, "rb", buffering=0) as terminal:
            shown = b"".join(read_terminal(terminal))
        assert process.stdout
        assert orjson.loads(process.stdout.read()) == {"tokens": 10_000}
    assert b"alpha" in shown
    assert b"100%" in shown
    assert b"3 in flight" in shown
    assert b"counted" in shown


def test_a_closed_reader_is_no_error(host: Host) -> None:
    command = f"{sys.executable} -m draftmill --help | head -1"
    answer = subprocess.run(["/bin/bash", "-o", "pipefail", "-c", command], capture_output=True, check=False, env=source_env())
    assert answer.stderr == b""
    assert answer.returncode == 0
