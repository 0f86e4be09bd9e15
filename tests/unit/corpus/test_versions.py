"""The link that readers follow."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftmill.corpus.versions import Versions
from draftmill.errors import PermanentError
from draftmill.layout import CampaignFolder


@pytest.fixture
def versions(tmp_path: Path) -> Versions:
    return Versions(CampaignFolder(tmp_path))


def publish(versions: Versions, text: str) -> Path:
    with versions.building() as folder:
        (folder / "train.jsonl").write_text(text)
        return versions.publish(folder, text * 32)


def test_the_current_version_is_what_the_link_points_to(versions: Versions, tmp_path: Path) -> None:
    assert versions.current() is None
    first = publish(versions, "a")
    assert versions.current() == first.resolve()
    assert (tmp_path / "corpus/train.jsonl").read_text() == "a"
    assert not (tmp_path / "corpus").readlink().is_absolute(), "a campaign's folder can be moved"


def test_one_version_before_is_kept(versions: Versions, tmp_path: Path) -> None:
    folders = [publish(versions, text) for text in "abc"]
    assert [folder.exists() for folder in folders] == [False, True, True]
    assert (tmp_path / "corpus/train.jsonl").read_text() == "c"


def test_a_version_with_the_manifest_of_a_damaged_one_takes_its_place(versions: Versions, tmp_path: Path) -> None:
    folders = [publish(versions, "a") for _ in range(3)]
    assert [folder.name.removeprefix("a" * 16) for folder in folders] == ["", "-1", "-2"]
    assert (tmp_path / "corpus").readlink() == Path("corpora") / folders[2].name
    assert (tmp_path / "corpus/train.jsonl").read_text() == "a"


def test_what_is_not_published_disappears(versions: Versions) -> None:
    publish(versions, "a")
    with versions.building() as folder:
        (folder / "half").write_text("half")
    assert not folder.exists()
    assert [path.name for path in versions.root.iterdir()] == ["a" * 16]


def test_what_a_kill_left_is_removed(versions: Versions) -> None:
    left = versions.root / ".building-left"
    left.mkdir(parents=True)
    (left / "half").write_text("half")
    publish(versions, "a")
    assert not left.exists()


def test_a_real_folder_in_the_way_is_not_touched(versions: Versions, tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    with pytest.raises(PermanentError, match="is not the link that draftmill makes there; move it away"):
        versions.current()
    assert (tmp_path / "corpus").is_dir()


def test_a_link_to_nowhere_is_no_version(versions: Versions, tmp_path: Path) -> None:
    (tmp_path / "corpus").symlink_to("corpora/gone")
    assert versions.current() is None
    publish(versions, "a")
    assert (tmp_path / "corpus/train.jsonl").read_text() == "a"
