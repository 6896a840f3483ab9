"""Where configs come from: YAML files, names of files in `configs/`, `key.path=value` overrides.

Nothing here knows a setting; `jobs.config` does. YAML is read as in version 1.2 (`on`, `yes` and
`no` are words, `1e-3` is a number), and what begins with a needless zero is a word (an id such as
`007` stays as it is). A key written twice is an error, not a silent overwrite.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from sentinel.errors import UserError

KINDS = ("benchmarks", "agents", "monitors", "sites")
"""Folders of `configs/` whose files a run config names."""

_PATH_KEYS = re.compile(r"(^|_)(dir|path|file|database|data|questions)$|^stop_with$")
_PATH_OR_NAME_KEYS = ("model", "encoder")
"""Settings that hold a path, or a registered name (`nano:…`) or hub id when they look like none."""


class _Loader(yaml.SafeLoader):
    """SafeLoader with YAML 1.2 words and numbers, and no repeated keys."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(k, deep=True) for k, _ in node.value]
        twice = sorted({str(k) for k in keys if keys.count(k) > 1})
        if twice:
            raise yaml.constructor.ConstructorError(
                None, None, f"written twice: {', '.join(twice)}", node.start_mark
            )
        return super().construct_mapping(node, deep)


_KEPT = ("null", "merge")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, rx) for tag, rx in pairs if tag.rpartition(":")[2] in _KEPT]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    re.compile(r"^[-+]?(0|[1-9][0-9_]*|0x[0-9a-fA-F]+)$"),
    list("-+0123456789"),
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?$|^[-+]?\.(inf|Inf|INF)$"
    ),
    list("-+0123456789."),
)


def parse_yaml(text: str, where: str) -> Any:
    """The value of a YAML text. Raises UserError with the line and column of a fault."""
    try:
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise UserError(f"{where}{place}: {problem}", "mend the YAML and run again") from error


def read_mapping(path: Path) -> dict[str, Any]:
    """One YAML file as a mapping. Raises UserError when it is missing, unreadable or no mapping."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UserError(f"no such config: {path}", _siblings(path)) from error
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}", "name a YAML file") from error
    value = parse_yaml(text, str(path))
    if not isinstance(value, dict):
        raise UserError(f"{path} holds no mapping of settings", "write `key: value` lines")
    return value


def search_folders(kind: str, beside: Path) -> list[Path]:
    """Folders in which a bare name of `kind` is looked up, first match first.

    `beside` is the folder of the file that names it. A wheel carries no `configs/`; then the folder
    of the run config and the current folder are all there is.
    """
    roots = [beside, Path.cwd() / "configs", Path(__file__).resolve().parent.parent / "configs"]
    folders = [folder for root in roots for folder in (root / kind, root)]
    return list(dict.fromkeys(f for f in folders if f.is_dir()))


def available(kind: str, beside: Path) -> list[str]:
    """Names that a config may use for `kind`."""
    folders = [f for f in search_folders(kind, beside) if f.name == kind]
    return sorted({p.stem for f in folders for p in f.glob("*.yaml")})


def resolve(kind: str, value: Any, beside: Path) -> dict[str, Any]:
    """A name, a path or an inline mapping as one plain mapping with absolute paths and a `name`.

    An inline mapping may start from a file: `{from: clinic, n_questions: 300}`.
    """
    if isinstance(value, Mapping):
        inline = absolute_paths(dict(value), beside)
        base = inline.pop("from", None)
        return {**(resolve(kind, base, beside) if base is not None else {}), **inline}
    if not isinstance(value, str):
        raise UserError(
            f"{kind}: {value!r} is no name, path or mapping",
            f"valid names: {', '.join(available(kind, beside)) or '(none found)'}",
        )
    if value.endswith((".yaml", ".yml")) or "/" in value:
        path = absolute(value, beside)
    else:
        found = [f / f"{value}.yaml" for f in search_folders(kind, beside)]
        path = next((p for p in found if p.is_file()), Path())
        if path == Path():
            names = available(kind, beside)
            raise UserError(f"{kind}: no config named {value!r}", hint(value, names))
    mapping = absolute_paths(read_mapping(path), path.parent)
    return {"name": path.stem, **mapping}


def absolute(text: str, beside: Path) -> Path:
    """A path written in a file, relative to that file's folder; `~` and `$VARIABLES` expanded."""
    path = Path(os.path.expandvars(text)).expanduser()
    return path if path.is_absolute() else Path(os.path.normpath(beside.resolve() / path))


def absolute_paths(mapping: dict[str, Any], beside: Path) -> dict[str, Any]:
    """The mapping with every path in it absolute, by the names of the keys."""
    out: dict[str, Any] = {}
    for key, value in mapping.items():
        if isinstance(value, dict):
            out[key] = absolute_paths(value, beside)
        elif isinstance(value, str) and _holds_path(str(key), value):
            out[key] = str(absolute(value, beside))
        elif isinstance(value, list) and _PATH_KEYS.search(str(key)):
            out[key] = [str(absolute(v, beside)) if isinstance(v, str) else v for v in value]
        else:
            out[key] = value
    return out


def _holds_path(key: str, value: str) -> bool:
    if key in _PATH_OR_NAME_KEYS:
        return value.startswith(("./", "../", "/", "~", "$"))
    return bool(_PATH_KEYS.search(key))


def parse_overrides(texts: Iterable[str]) -> list[tuple[list[str], Any]]:
    """`key.path=value` texts as (path, YAML value). Raises UserError with all bad ones."""
    pairs, bad = [], []
    for text in texts:
        key, equals, value = text.partition("=")
        parts = key.strip().split(".")
        if not equals or not all(parts):
            bad.append(text)
        else:
            pairs.append((parts, parse_yaml(value, f"override {key}") if value else None))
    if bad:
        raise UserError(
            f"not an override: {', '.join(repr(b) for b in bad)}",
            "write key.path=value, for example collect.limit=100",
        )
    return pairs


def apply(config: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set one value in place. List items are named by index or by their `name`."""
    where: Any = config
    for at, part in enumerate(path):
        last = at == len(path) - 1
        if isinstance(where, list):
            key: Any = _item(where, part, ".".join(path))
        elif isinstance(where, dict):
            key = part
            if not last and not isinstance(where.get(key), dict | list):
                where[key] = {}
        else:
            raise UserError(f"override {'.'.join(path)}: {part} is inside a plain value", "")
        if last:
            where[key] = absolute_paths({part: value}, Path.cwd())[part]
        else:
            where = where[key]


def _item(items: list[Any], part: str, path: str) -> int:
    names = [i.get("name") if isinstance(i, dict) else i for i in items]
    if part in names:
        return names.index(part)
    if part.isdigit() and int(part) < len(items):
        return int(part)
    raise UserError(f"override {path}: no item {part!r}", hint(part, [str(n) for n in names]))


def hint(word: str, names: Iterable[str]) -> str:
    """`did you mean X? valid: …`, or what to say when there are none."""
    names = list(names)
    close = difflib.get_close_matches(word, names, n=1)
    start = f"did you mean {close[0]}? " if close else ""
    return f"{start}valid: {', '.join(names) if names else '(none found)'}"


def _siblings(path: Path) -> str:
    names = sorted(p.name for p in path.parent.glob("*.yaml")) if path.parent.is_dir() else []
    return hint(path.name, names) if names else "give the path of a YAML file"
