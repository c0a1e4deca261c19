"""The disk cache: round trip, damage, permissions, eviction, concurrency of processes."""

from __future__ import annotations

import os
import secrets
import stat
import time
import warnings
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from loopgrad.codegen.artifact import Artifact
from loopgrad.runtime import cache as cache_module
from loopgrad.runtime import private_folder
from loopgrad.runtime.cache import CacheWarning, DiskCache, compiler_digest, default_cache, entry_name, kept_code
from loopgrad.runtime.private_folder import ABANDONED_SECONDS


@dataclass(frozen=True)
class Record:
    name: str
    numbers: tuple[int | None, ...]


ARTIFACT = Artifact(Record("x", (1, 2, None)), b"constants", b"\x7fELF code")
PARTS = ("program", "key")


def same(left: Artifact[Record] | None, right: Artifact[Record]) -> bool:
    assert left is not None
    return (left.program, left.constants, left.code) == (right.program, right.constants, right.code)


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.program"))


def test_round_trip_between_two_caches(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    first = DiskCache(folder)
    assert first.load(PARTS, Record) is None
    first.store(PARTS, ARTIFACT)
    assert same(first.load(PARTS, Record), ARTIFACT)
    assert same(DiskCache(folder).load(PARTS, Record), ARTIFACT)
    assert DiskCache(folder).load(("program", "other"), Record) is None


def test_only_the_owner_may_look(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    DiskCache(folder).store(PARTS, ARTIFACT)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_folder_that_others_may_read_stays_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o755)
    DiskCache(folder).store(PARTS, ARTIFACT)
    assert same(DiskCache(folder).load(PARTS, Record), ARTIFACT)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def refused(folder: Path, reason: str) -> None:
    """Nothing is loaded, nothing is written, and one warning says why."""
    before = {p: p.lstat() for p in [folder, *folder.iterdir()]}
    cache = DiskCache(folder)
    with pytest.warns(CacheWarning, match=reason):
        assert cache.load(PARTS, Record) is None
    cache.store(PARTS, ARTIFACT)  # without another warning
    assert cache.load(PARTS, Record) is None
    assert {p: p.lstat().st_mtime_ns for p in [folder, *folder.iterdir()]} == {
        p: status.st_mtime_ns for p, status in before.items()
    }
    assert folder.stat().st_mode == before[folder].st_mode


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o707, 0o1777])
def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path, mode: int) -> None:
    """What is in it may be theirs, whatever is done to its mode now."""
    folder = tmp_path / "cache"
    DiskCache(folder).store(PARTS, ARTIFACT)
    folder.chmod(mode)
    refused(folder, "others may write to it")


def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    DiskCache(folder).store(PARTS, ARTIFACT)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    refused(folder, "belongs to user")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to give files away")
@pytest.mark.parametrize("name", ["key", entry_name(PARTS)])
def test_a_file_of_somebody_else_is_not_used(tmp_path: Path, name: str) -> None:
    DiskCache(tmp_path).store(PARTS, ARTIFACT)
    (tmp_path / name).touch()
    os.chown(tmp_path / name, 65534, 65534)
    refused(tmp_path, f"{name} in it is a file of user 65534")


@pytest.mark.parametrize("name", ["key", entry_name(PARTS)])
def test_a_link_is_not_followed(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "cache"
    DiskCache(folder).store(PARTS, ARTIFACT)
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    refused(folder, f"{name} in it is a link")


def test_a_link_that_comes_later_is_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    cache = DiskCache(folder)
    cache.store(PARTS, ARTIFACT)
    entry = folder / entry_name(PARTS)
    entry.rename(tmp_path / "elsewhere")
    entry.symlink_to(tmp_path / "elsewhere")
    with pytest.warns(CacheWarning, match="is a link"):
        assert cache.load(PARTS, Record) is None


@pytest.mark.parametrize("name", ["key", entry_name(PARTS)])
def test_a_pipe_is_not_waited_for(tmp_path: Path, name: str) -> None:
    DiskCache(tmp_path).store(PARTS, ARTIFACT)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    refused(tmp_path, f"{name} in it isn't a file")


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    """A file that is being written now stays."""
    for name, age in ((".writing-old", 2 * ABANDONED_SECONDS), (".writing-now", 0.0)):
        (tmp_path / name).write_bytes(b"part")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    assert DiskCache(tmp_path).load(PARTS, Record) is None
    assert {p.name for p in tmp_path.iterdir()} == {"key", ".writing-now"}


def test_a_user_there_is_not_is_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache_module.FOLDER_VARIABLE, "~nosuchuser/cache")
    with pytest.warns(CacheWarning, match="home directory"):
        assert default_cache() is None


@pytest.mark.parametrize("damage", ["flip", "truncate", "extend", "empty", "rename", "key"])
def test_damage_is_a_miss_and_one_warning(tmp_path: Path, damage: str) -> None:
    cache = DiskCache(tmp_path)
    for name in ("a", "b"):
        cache.store(("program", name), ARTIFACT)
    for path in entries(tmp_path):
        data = bytearray(path.read_bytes())
        if damage == "flip":
            data[len(data) // 2] ^= 1
        path.write_bytes({"truncate": data[:-5], "extend": data + b"extra", "empty": b""}.get(damage, data))
    if damage == "rename":
        first, second = entries(tmp_path)
        content = first.read_bytes()
        first.write_bytes(second.read_bytes())
        second.write_bytes(content)
    if damage == "key":
        (tmp_path / "key").write_bytes(bytes(32))
    cache = DiskCache(tmp_path)
    with pytest.warns(CacheWarning, match="damaged") as caught:
        loaded = [cache.load(("program", name), Record) for name in ("a", "b")]
    assert loaded == [None, None]
    assert len(caught) == 1
    assert entries(tmp_path) == []
    cache.store(("program", "a"), ARTIFACT)
    assert same(cache.load(("program", "a"), Record), ARTIFACT)


def test_the_least_recently_used_leave_first(tmp_path: Path) -> None:
    big = Artifact(Record("big", ()), b"", bytes(10_000))
    cache = DiskCache(tmp_path, limit=35_000)
    for i in range(3):
        cache.store(("program", str(i)), big)
        os.utime(tmp_path / entry_name(("program", str(i))), ns=(i, i))
    assert cache.load(("program", "0"), Record) is not None  # now the latest used
    cache.store(("program", "3"), big)
    kept = [i for i in range(4) if (tmp_path / entry_name(("program", str(i)))).exists()]
    assert kept == [0, 3]


def test_the_folder_is_looked_at_seldom_and_its_limit_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    swept = DiskCache._swept

    def counted(cache: DiskCache) -> int:
        looks.append(cache)
        return swept(cache)

    monkeypatch.setattr(DiskCache, "_swept", counted)
    caches = [DiskCache(tmp_path, limit=400_000) for _ in range(2)]  # as two processes have
    for i in range(300):
        caches[i % 2].store(("program", str(i)), Artifact(Record("big", ()), b"", bytes(2_000)))
        assert sum(path.stat().st_size for path in entries(tmp_path)) <= 400_000 + 3_000
    assert len(looks) < 100
    room = DiskCache(tmp_path / "another")
    looks.clear()
    for i in range(50):
        room.store(("program", str(i)), ARTIFACT)
    assert looks in ([], [room])
    looks.clear()
    drawn = count()
    monkeypatch.setattr(secrets, "randbelow", lambda n: next(drawn) * n // 100)
    for i in range(100):  # processes of which each writes little: some of them look
        DiskCache(tmp_path / "third", limit=1 << 20).store(("program", str(i)), ARTIFACT)
    assert looks


def test_opening_a_full_folder_asks_about_no_file_but_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That took a quarter of a second with 20,000 programs, in each process."""
    filled = DiskCache(tmp_path)
    for i in range(20):
        filled.store(("program", str(i)), ARTIFACT)
    asked = []
    monkeypatch.setattr(private_folder, "_ours", lambda status: asked.append(status) or True)
    assert same(DiskCache(tmp_path).load(("program", "7"), Record), ARTIFACT)
    assert len(asked) == 4  # the folder, by two ways, the key, and the entry


def test_a_folder_that_cannot_be_made_is_survived(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = DiskCache(tmp_path / "file" / "cache")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.load(PARTS, Record) is None
        cache.store(PARTS, ARTIFACT)


def test_a_folder_that_vanishes_is_survived(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    cache = DiskCache(folder)
    cache.store(PARTS, ARTIFACT)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    assert cache.load(PARTS, Record) is None
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


def digest_of(sources: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(cache_module, "__file__", str(sources / "runtime" / "cache.py"))
    return compiler_digest.__wrapped__()


def test_the_digest_is_the_content_of_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names, sizes and times are equal in builds and images that fix them."""
    for version in ("one", "two", "same"):
        for layer in ("graph", "codegen"):
            source = tmp_path / version / layer / "inner" / "recipes.py"
            source.parent.mkdir(parents=True)
            source.write_text("fsub" if (version, layer) == ("two", "codegen") else "fadd")
            os.utime(source, (1, 1))
    one, two, same = [digest_of(tmp_path / version, monkeypatch) for version in ("one", "two", "same")]
    assert one == same != two


def test_the_digest_names_the_libraries_that_fold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for layer in ("graph", "codegen"):
        (tmp_path / layer).mkdir()
    before = digest_of(tmp_path, monkeypatch)
    monkeypatch.setattr(cache_module.np, "__version__", "1.0")
    assert digest_of(tmp_path, monkeypatch) != before


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


@dataclass(frozen=True)
class Other:
    name: int


def test_an_entry_that_holds_no_such_program_is_damaged(tmp_path: Path) -> None:
    """Whoever wrote it had the key: it is a miss, is removed, and the program is compiled again."""
    cache = DiskCache(tmp_path)
    cache.store(PARTS, ARTIFACT)
    with pytest.warns(CacheWarning, match="damaged"):
        assert cache.load(PARTS, Other) is None
    assert not entries(tmp_path)
    cache.store(PARTS, ARTIFACT)
    assert same(cache.load(PARTS, Record), ARTIFACT)
