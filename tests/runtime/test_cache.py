"""The disk cache: round trip, damage, permissions, eviction, concurrency of processes."""

from __future__ import annotations

import os
import stat
import warnings
from pathlib import Path

import pytest

from loopgrad.codegen.artifact import Artifact
from loopgrad.runtime import cache as cache_module
from loopgrad.runtime.cache import CacheWarning, DiskCache, default_cache, entry_name, kept_code, source_digest

ARTIFACT = Artifact({"format": 1, "list": [1, [2, None], "x"]}, b"constants", b"\x7fELF code")
PARTS = ("program", "key")


def same(left: Artifact | None, right: Artifact) -> bool:
    assert left is not None
    return (left.metadata, left.constants, left.code) == (right.metadata, right.constants, right.code)


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.program"))


def test_round_trip_between_two_caches(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    first = DiskCache(folder)
    assert first.load(PARTS) is None
    first.store(PARTS, ARTIFACT)
    assert same(first.load(PARTS), ARTIFACT)
    assert same(DiskCache(folder).load(PARTS), ARTIFACT)
    assert DiskCache(folder).load(("program", "other")) is None


def test_only_the_owner_may_look(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o755)
    DiskCache(folder).store(PARTS, ARTIFACT)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    DiskCache(folder).store(PARTS, ARTIFACT)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert DiskCache(folder).load(PARTS) is None


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "rename", "key"])
def test_damage_is_a_miss_and_one_warning(tmp_path: Path, damage: str) -> None:
    cache = DiskCache(tmp_path)
    for name in ("a", "b"):
        cache.store(("program", name), ARTIFACT)
    for path in entries(tmp_path):
        data = bytearray(path.read_bytes())
        if damage == "flip":
            data[len(data) // 2] ^= 1
        path.write_bytes({"truncate": bytes(data[:-5]), "empty": b""}.get(damage, bytes(data)))
    if damage == "rename":
        first, second = entries(tmp_path)
        content = first.read_bytes()
        first.write_bytes(second.read_bytes())
        second.write_bytes(content)
    if damage == "key":
        (tmp_path / "key").write_bytes(bytes(32))
    cache = DiskCache(tmp_path)
    with pytest.warns(CacheWarning, match="damaged") as caught:
        loaded = [cache.load(("program", name)) for name in ("a", "b")]
    assert loaded == [None, None]
    assert len(caught) == 1
    assert entries(tmp_path) == []
    cache.store(("program", "a"), ARTIFACT)
    assert same(cache.load(("program", "a")), ARTIFACT)


def test_the_least_recently_used_leave_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "WRITES_BETWEEN_SWEEPS", 1)
    big = Artifact({}, b"", bytes(10_000))
    cache = DiskCache(tmp_path, limit=35_000)
    for i in range(3):
        cache.store(("program", str(i)), big)
        os.utime(tmp_path / entry_name(("program", str(i))), ns=(i, i))
    assert cache.load(("program", "0")) is not None  # now the latest used
    cache.store(("program", "3"), big)
    kept = [i for i in range(4) if (tmp_path / entry_name(("program", str(i)))).exists()]
    assert kept == [0, 3]


def test_a_folder_that_cannot_be_made_is_survived(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = DiskCache(tmp_path / "file" / "cache")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.load(PARTS) is None
        cache.store(PARTS, ARTIFACT)


def test_a_folder_that_vanishes_is_survived(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    cache = DiskCache(folder)
    cache.store(PARTS, ARTIFACT)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    assert cache.load(PARTS) is None
    cache.store(PARTS, ARTIFACT)


def test_no_temporary_file_stays(tmp_path: Path) -> None:
    DiskCache(tmp_path).store(PARTS, ARTIFACT)
    assert {p.name for p in tmp_path.iterdir()} == {"key", entry_name(PARTS)}


def test_names_tell_parts_apart() -> None:
    assert entry_name(("ab", "c")) != entry_name(("a", "bc"))


def test_the_environment_chooses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache_module.FOLDER_VARIABLE, str(tmp_path))
    chosen = default_cache()
    assert chosen is not None
    assert chosen.folder == tmp_path
    monkeypatch.setenv(cache_module.FOLDER_VARIABLE, "")
    assert default_cache() is None
    monkeypatch.delenv(cache_module.FOLDER_VARIABLE)
    standard = default_cache()
    assert standard is not None
    assert "loopgrad" in str(standard.folder)


def test_the_source_digest_is_stable() -> None:
    assert source_digest() == source_digest()
    assert len(source_digest()) == 32


def test_code_without_a_program(tmp_path):
    """Made once a folder, and again where there is none."""
    made = []

    def make() -> bytes:
        made.append(1)
        return b"code"

    cache = DiskCache(tmp_path / "cache")
    assert [kept_code(cache, ("a", "b"), make) for _ in range(2)] == [b"code"] * 2
    assert len(made) == 1
    assert kept_code(cache, ("a", "c"), make) == kept_code(None, ("a", "b"), make) == b"code"
    assert len(made) == 3
