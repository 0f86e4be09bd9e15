from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from draftmill.errors import PermanentError
from draftmill.jobs.secrets import merge_secrets, read_secrets
from draftmill.layout import Workspace


def test_newer_values_win_and_others_stay(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    assert merge_secrets(workspace, {"A": "1", "B": "2"}) == {"A": "1", "B": "2"}
    assert merge_secrets(workspace, {"B": "3"}) == {"A": "1", "B": "3"}
    assert read_secrets(workspace) == {"A": "1", "B": "3"}


def test_the_file_is_for_the_user_alone_even_if_it_was_not(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.secrets.write_text("{}")
    workspace.secrets.chmod(0o644)
    merge_secrets(workspace, {"A": "1"})
    assert workspace.secrets.stat().st_mode & 0o777 == 0o600


def test_nothing_to_store_makes_no_file(tmp_path: Path) -> None:
    assert merge_secrets(Workspace(tmp_path / "new"), {}) == {}
    assert not (tmp_path / "new").exists()


def test_stores_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: merge_secrets(Workspace(tmp_path), {f"NAME_{number}": str(number)}), range(40)))
    assert len(read_secrets(Workspace(tmp_path))) == 40


@pytest.mark.parametrize("secrets", [{"": "hidden-value"}, {"A=B": "hidden-value"}, {"A": "hidden-value\0"}])
def test_what_can_be_no_variable_is_refused_without_its_value(tmp_path: Path, secrets: dict[str, str]) -> None:
    with pytest.raises(PermanentError) as caught:
        merge_secrets(Workspace(tmp_path), secrets)
    assert "hidden-value" not in str(caught.value)
