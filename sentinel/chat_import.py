"""Episodes collected elsewhere: chat messages as JSON, JSONL, either compressed (.xz, .gz).

A bad record costs only itself and is named. An outcome is taken strictly from its own value: true
or false, 1 or 0; anything else is unknown, never a failure, and nothing is inferred from how an
episode ended.
"""

from __future__ import annotations

import gzip
import json
import lzma
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentinel.chat_messages import RecordError, Transcript, transcript
from sentinel.errors import UserError

KEYS: Mapping[str, tuple[str, ...]] = {
    "task_id": ("task_id",),
    "trial": ("trial",),
    "success": ("success", "reward"),
    "messages": ("messages", "traj"),
}
"""What a record must hold, and under which keys it is looked for."""
OPTIONAL = ("id",)
ALIASES = {"reward": "success", "traj": "messages"}
IN_ORDER = "-"
"""Given as the key of `trial`: a task's episodes are numbered as they come."""
_MISSING = object()


@dataclass(frozen=True)
class ChatEpisode:
    """One finished episode; `success` is None where its outcome is unknown."""

    episode_id: str
    task_id: str
    success: bool | None
    transcript: Transcript

    @property
    def rounds(self) -> int:
        """T."""
        return self.transcript.rounds


@dataclass(frozen=True)
class Imported:
    """Episodes in the file's order, and what did not become one.

    `bad`, `duplicates`: one line each, naming the record; `unknown`: outcome values that are
    neither success nor failure, with their counts; `keys`: what was read under which key.
    """

    episodes: tuple[ChatEpisode, ...]
    records: int
    bad: tuple[str, ...]
    duplicates: tuple[str, ...]
    unknown: Mapping[str, int]
    keys: Mapping[str, str]


def read(path: Path, keys: Mapping[str, str] | None = None) -> Imported:
    """Read a file of episodes; `keys` renames what is looked for (see `parse_keys`).

    Raises UserError for a file that is missing or no such JSON, for keys that no record has (all
    named at once), and where no record can be used.
    """
    return collect(read_records(path), keys, str(path))


def parse_keys(given: Iterable[str]) -> dict[str, str]:
    """`NAME=KEY` pairs; a KEY may go into nested objects by dots.

    >>> parse_keys(["task_id=problem", "reward=info.solved"])
    {'task_id': 'problem', 'success': 'info.solved'}
    """
    found: dict[str, str] = {}
    faults = []
    for pair in given:
        name, _, key = pair.partition("=")
        name = ALIASES.get(name, name)
        if name not in (*KEYS, *OPTIONAL) or not key:
            faults.append(f"{pair} is no NAME=KEY")
        elif name in found:
            faults.append(f"{name} is given twice")
        else:
            found[name] = key
    if faults:
        valid = ", ".join((*KEYS, *ALIASES, *OPTIONAL))
        raise UserError(f"--key: {'; '.join(faults)}", f"the names are: {valid}")
    return found


def read_records(path: Path) -> list[tuple[str, Any]]:
    """(where, value) of every record; a line that is no JSON is a RecordError in its place."""
    try:
        data = _unpacked(path.read_bytes())
    except FileNotFoundError as error:
        raise UserError(f"no file {path}", "name a JSON or JSONL file of episodes") from error
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise UserError(f"{path} cannot be read: {error}", "fetch or write it again") from error
    data = data.removeprefix(b"\xef\xbb\xbf")
    whole = _parse(data)
    if isinstance(whole, list):
        records = [(f"record {i}", value) for i, value in enumerate(whole, 1)]
    elif isinstance(whole, dict):
        records = [("record 1", whole)]
    elif isinstance(whole, RecordError) and not data.lstrip().startswith(b"["):
        # JSON Lines are split at "\n" only: other line ends occur inside values.
        lines = [(f"line {i}", line) for i, line in enumerate(data.split(b"\n"), 1)]
        records = [(where, _parse(line)) for where, line in lines if line.strip()]
    else:
        records = []
    if not any(isinstance(value, dict) for _, value in records):
        why = f": {whole}" if isinstance(whole, RecordError) and data.strip() else ""
        raise UserError(
            f"{path} holds no list of episodes{why}",
            "give a JSON list of objects, or one object a line (JSONL), also as .xz or .gz",
        )
    return records


def collect(
    records: Sequence[tuple[str, Any]], keys: Mapping[str, str] | None = None, name: str = "input"
) -> Imported:
    """Episodes of records that were read; the first of several with one id is kept."""
    found = _resolve([v for _, v in records if isinstance(v, dict)], keys or {}, name)
    episodes: dict[str, ChatEpisode] = {}
    bad, duplicates = [], []
    unknown: Counter[str] = Counter()
    order: Counter[str] = Counter()
    for where, value in records:
        try:
            episode = _episode(value, found, order)
        except RecordError as error:
            bad.append(f"{where}: {error}")
            continue
        except RecursionError:
            bad.append(f"{where}: nested too deeply")
            continue
        if episode.episode_id in episodes:
            duplicates.append(f"{where}: another episode {_short(episode.episode_id)}")
            continue
        episodes[episode.episode_id] = episode
        if episode.success is None:
            unknown[_short(_get(value, found["success"]))] += 1
    if not episodes:
        raise UserError(f"{name} has no usable record: {bad[0]}", "see --key, or mend the file")
    return Imported(
        tuple(episodes.values()), len(records), tuple(bad), tuple(duplicates), unknown, found
    )


def outcome(value: Any) -> bool | None:
    """Success strictly from its own value: a truth value, or exactly 1 or 0; else None.

    >>> [outcome(v) for v in (True, 0.0, 1, 0.5, "1", None)]
    [True, False, True, None, None, None]
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and value in (0, 1):
        return value == 1
    return None


def _episode(value: Any, keys: Mapping[str, str], order: Counter[str]) -> ChatEpisode:
    if isinstance(value, RecordError):
        raise value
    if not isinstance(value, dict):
        raise RecordError("no object")
    task = _id(value, keys["task_id"])
    if "id" in keys:
        episode_id = _id(value, keys["id"])
    else:
        if keys["trial"] == IN_ORDER:
            trial = str(order[task])
        else:
            trial = _id(value, keys["trial"])
        # A slash in the trial could make two pairs one id; one in the task cannot.
        episode_id = f"{task}/{trial.replace('%', '%25').replace('/', '%2F')}"
    messages = _get(value, keys["messages"])
    if messages is _MISSING:
        raise RecordError(f"no key {keys['messages']}")
    found = transcript(messages)
    order[task] += 1
    return ChatEpisode(episode_id, task, outcome(_get(value, keys["success"])), found)


def _id(value: Mapping[str, Any], key: str) -> str:
    """An id as text, exactly as written: "007" stays, 7 becomes "7"."""
    found = _get(value, key)
    if found is _MISSING:
        raise RecordError(f"no key {key}")
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    if not isinstance(found, str) or not found:
        raise RecordError(f"{key} is {_short(found)}, not text or a whole number")
    try:
        found.encode()
    except UnicodeEncodeError as error:
        raise RecordError(f"{key} is no valid text") from error
    return found


def _resolve(
    records: Sequence[Mapping[str, Any]], given: Mapping[str, str], name: str
) -> dict[str, str]:
    wanted: dict[str, tuple[str, ...]] = {**KEYS, **{k: (v,) for k, v in given.items()}}
    if "id" in wanted and "trial" not in given:
        del wanted["trial"]
    found, missing = {}, []
    for what, alternatives in wanted.items():
        has = [k for k in alternatives if any(_get(r, k) is not _MISSING for r in records)]
        if has:
            found[what] = has[0]
        elif what == "trial" and alternatives == (IN_ORDER,):
            found[what] = IN_ORDER
        else:
            missing.append(" or ".join(alternatives))
    if missing:
        keys = list(dict.fromkeys(k for r in records for k in r))
        there = ", ".join(_short(k) for k in keys[:20])
        raise UserError(
            f"no record of {name} has the keys: {'; '.join(missing)} (there are: {there})",
            f"name them, as in --key task_id=KEY; trial={IN_ORDER} numbers a task's episodes",
        )
    return found


def _get(record: Mapping[str, Any], key: str) -> Any:
    if key in record:
        return record[key]
    value: Any = record
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return _MISSING
        value = value[part]
    return value


def _short(value: Any) -> str:
    if value is _MISSING:
        return "missing"
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _unpacked(data: bytes) -> bytes:
    if data.startswith(b"\xfd7zXZ\x00"):
        return lzma.decompress(data)
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


def _parse(data: bytes) -> Any:
    """The JSON value, or a RecordError in its place."""
    try:
        return json.loads(data)
    except RecursionError:
        return RecordError("nested too deeply")
    except ValueError as error:
        return RecordError(f"no JSON ({str(error).splitlines()[0][:80]})")
