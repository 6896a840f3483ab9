"""The recipe folder of Minecraft 1.16.5 as a `RecipeBook`, with the filters of TextCraft.

Kept are shaped and shapeless recipes; of alternatives for an ingredient the first; no recipe with a
single ingredient that is a `…_block`; none that would close a circle. A recipe's `group` is a tag
of what it makes. A tag that no kept recipe makes is an ordinary item. Files are read in the order
of their names, whatever the directory's is.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from sentinel.benchmarks.base import DataError
from sentinel.benchmarks.craft.rules import Amount, Recipe, RecipeBook
from sentinel.benchmarks.textcraft.presets import WORDS
from sentinel.benchmarks.whole_file import Stamp, stamp

FILES_1_16_5 = 860
SHA256_1_16_5 = "f029a3300f2f79bb16483e0d3bdb05adfd6cd88fe4c0b0c8986baa3e92d91570"
"""Hash of the recipe folder that TextCraft was published with (`folder_hash`)."""
SHAPED, SHAPELESS = "minecraft:crafting_shaped", "minecraft:crafting_shapeless"
NAME_THEM = "set recipes_path to TextCraft's recipe folder (Minecraft 1.16.5), or to its .tar.xz"


@dataclass(frozen=True)
class RecipeFolder:
    """The recipes with the hash and the number of the files they come from."""

    book: RecipeBook
    sha256: str
    n_files: int


def load_folder(path: Path, sha256: str = SHA256_1_16_5) -> RecipeFolder:
    """Read a recipe folder, or a tar archive of one; it must have this hash.

    Read once as long as no file of it is replaced. Raises DataError for a missing, damaged or empty
    folder, and for one of another version.
    """
    return _load(path, sha256, stamp(path))


@lru_cache(maxsize=4)
def _load(path: Path, sha256: str, files_as_they_are: Stamp) -> RecipeFolder:
    del files_as_they_are  # a key of the cache
    files = read_files(path)
    found = folder_hash(files)
    if found != sha256:
        wanted = "Minecraft 1.16.5's" if sha256 == SHA256_1_16_5 else "the one that was asked for"
        raise DataError(
            f"textcraft: {path} holds another version of the recipes ({len(files)} files, hash "
            f"{found[:16]}), not {wanted} ({sha256[:16]})",
            f"{NAME_THEM}; to use other recipes on purpose, set recipes_sha256: {found}",
        )
    return RecipeFolder(make_book(files), found, len(files))


def read_files(path: Path) -> dict[str, Any]:
    """File name → its JSON, sorted by name."""
    try:
        raw = dict(_from_folder(path) if path.is_dir() else _from_tar(path))
    except (OSError, tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise DataError(f"textcraft: cannot read {path}: {error}", NAME_THEM) from error
    if not raw:
        raise DataError(f"textcraft: {path} holds no recipe (*.json)", NAME_THEM)
    found = {}
    for name in sorted(raw):
        try:
            found[name] = json.loads(raw[name])
        except ValueError as error:
            raise DataError(
                f"textcraft: {name} in {path} is damaged: {error}", "get the recipes again"
            ) from error
    return found


def _from_folder(path: Path) -> Iterable[tuple[str, bytes]]:
    inner = path / "recipes"
    for file in (inner if inner.is_dir() else path).iterdir():
        if file.suffix == ".json":
            yield file.name, file.read_bytes()


def _from_tar(path: Path) -> Iterable[tuple[str, bytes]]:
    with tarfile.open(path) as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.isfile() else None
            if stream is not None and member.name.endswith(".json"):
                yield PurePosixPath(member.name).name, stream.read()


def folder_hash(files: Mapping[str, Any]) -> str:
    """sha256 over names and contents; spaces and line ends of a file do not count."""
    text = json.dumps(dict(files), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def make_book(files: Mapping[str, Any]) -> RecipeBook:
    """The recipes that are left after the filters, sorted by item.

    Raises DataError for a recipe whose form is not 1.16's.
    """
    reader = _Reader()
    for name in sorted(files):
        try:
            reader.read(files[name])
        except (KeyError, TypeError, AttributeError, ValueError, StopIteration) as error:
            raise DataError(
                f"textcraft: {name} has a form that Minecraft 1.16 does not use ({error!r})",
                NAME_THEM,
            ) from error
    return reader.book()


class _Reader:
    """Reads one recipe after the other, as the original does."""

    def __init__(self) -> None:
        self.recipes: dict[str, list[Recipe]] = {}
        self.items: set[str] = set()
        self.part_tags: set[str] = set()
        self.tag_of: dict[str, str] = {}
        self.below: dict[str, set[str]] = {}
        """Item → all that may go into it, as far as was read."""

    def read(self, recipe: Mapping[str, Any]) -> None:
        """Take one file in, or leave it out."""
        counts = _counts(recipe)
        if counts is None:
            return
        for kind, name in counts:
            (self.items if kind == "item" else self.part_tags).add(name)
        result = recipe["result"]
        made = result if isinstance(result, str) else result["item"]
        out = Amount(1 if isinstance(result, str) else int(result.get("count") or 1), _plain(made))
        self.items.add(out.name)
        names = [name for _, name in counts]
        if len(names) == 1 and names[0].endswith(" block"):
            return
        group = recipe.get("group")
        if group and _plain(group) != out.name:
            self.tag_of[out.name] = _plain(group)
        below = self.below.setdefault(out.name, set())
        if any(out.name in self.below.get(name, ()) for name in names):
            return
        parts = tuple(Amount(count, name) for (_, name), count in counts.items())
        self.recipes.setdefault(out.name, []).append(Recipe(out, parts))
        for name in names:
            below |= {name, *self.below.get(name, ())}

    def book(self) -> RecipeBook:
        """What was read, with the tags that some kept recipe's item carries."""
        carriers: dict[str, list[str]] = {}
        for item, tag in self.tag_of.items():
            if tag in self.part_tags:
                carriers.setdefault(tag, []).append(item)
        tags = {
            tag: tuple(sorted(items))
            for tag, items in carriers.items()
            if any(item in self.recipes for item in items)
        }
        recipes = tuple(r for item in sorted(self.recipes) for r in self.recipes[item])
        extra = frozenset(self.items | (self.part_tags - tags.keys()))
        return RecipeBook(recipes, tags, extra=extra, words=WORDS)


def _counts(recipe: Mapping[str, Any]) -> dict[tuple[str, str], int] | None:
    """(`item` or `tag`, name) → how many, for a recipe on the crafting table; else None."""
    found: dict[tuple[str, str], int] = {}
    if recipe["type"] == SHAPED:
        for sign, part in recipe["key"].items():
            what = _part(part)
            found[what] = found.get(what, 0) + sum(line.count(sign) for line in recipe["pattern"])
        return found
    if recipe["type"] == SHAPELESS:
        for part in recipe["ingredients"]:
            what = _part(part)
            found[what] = found.get(what, 0) + 1
        return found
    return None


def _part(part: Any) -> tuple[str, str]:
    part = part[0] if isinstance(part, list) else part
    kind = next(k for k in ("item", "tag") if k in part)
    return kind, _plain(part[kind])


def _plain(name: str) -> str:
    return name.removeprefix("minecraft:").replace("_", " ")
