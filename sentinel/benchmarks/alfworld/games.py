"""Game files: found below a folder, named by their path, frozen by their hash.

A `game.tw-pddl` is JSON with a PDDL domain, a PDDL problem and a grammar. The package ships none;
`alfworld-download` gets them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sentinel.benchmarks.base import DataError
from sentinel.benchmarks.whole_file import write_text

FILE = "game.tw-pddl"
FORMAT = 1
GET_THEM = "set games_dir to a folder of ALFWorld's games (alfworld-download makes one)"
_TASK = re.compile(r"Your task is to: (.+?)\.?(?:\\n|\"|\n|$)")
_MOVE = "move {o} to {r}"
_KEYS = ("pddl_domain", "pddl_problem", "grammar")


@dataclass(frozen=True, slots=True)
class GameFile:
    """One game. `kind` is the folder that holds the trials of one goal; `goal` is in words."""

    game_id: str
    path: Path
    sha256: str
    kind: str
    goal: str


def find(folder: Path) -> dict[str, GameFile]:
    """Every solvable game below a folder, by id (its folder's path), in the order of ids.

    Raises DataError where there is none, and for a game that is damaged or of a version before
    0.4, whose commands are other ones.
    """
    paths = sorted(folder.rglob(FILE), key=lambda p: p.parent.relative_to(folder).as_posix())
    if not paths:
        raise DataError(f"alfworld: no {FILE} below {folder}", GET_THEM)
    found = (read(path, folder) for path in paths)
    games = {game.game_id: game for game in found if game is not None}
    if not games:
        raise DataError(f"alfworld: every game below {folder} is marked as unsolvable", GET_THEM)
    return games


def read(path: Path, folder: Path) -> GameFile | None:
    """One game, or None where it says itself that it cannot be solved."""
    try:
        raw = path.read_bytes()
        game = json.loads(raw)
        grammar = str(game["grammar"])
        missing = [key for key in _KEYS if not game.get(key)]
    except OSError as error:
        raise DataError(f"alfworld: cannot read {path}: {error}", GET_THEM) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"alfworld: {path} is damaged ({error!r})", "get the game again") from error
    if missing:
        raise DataError(f"alfworld: {path} lacks {', '.join(missing)}", "get the game again")
    if game.get("solvable") is False:
        return None
    if _MOVE not in grammar:
        raise DataError(
            f"alfworld: {path} is of a version before 0.4 (it has no command `move … to …`)",
            "get the games of alfworld 0.4: alfworld-download",
        )
    relative = path.parent.relative_to(folder)
    said = _TASK.search(grammar)
    return GameFile(
        relative.as_posix(),
        path,
        hashlib.sha256(raw).hexdigest(),
        relative.parent.as_posix() if relative.parent.parts else relative.as_posix(),
        said[1].strip() if said else relative.as_posix(),
    )


def choose(games: Mapping[str, GameFile], n: int | None, seed: int) -> dict[str, GameFile]:
    """n of the games by seed, whichever others there are; None: all. In the order of ids."""
    if n is None:
        return dict(games)
    if n > len(games):
        raise DataError(f"alfworld: {len(games)} games, not the {n} of n_tasks", GET_THEM)

    def rank(game_id: str) -> str:
        return hashlib.sha256(f"{seed}/{game_id}".encode()).hexdigest()

    kept = set(sorted(games, key=rank)[:n])
    return {game_id: game for game_id, game in games.items() if game_id in kept}


def write_list(games: Mapping[str, GameFile], path: Path, seed: int) -> None:
    """Freeze games: ids and hashes, nothing of what they hold, and the seed they were chosen by."""
    rows = {game_id: game.sha256 for game_id, game in games.items()}
    write_text(path, json.dumps({"format": FORMAT, "seed": seed, "games": rows}, indent=1) + "\n")


def frozen(
    games: Mapping[str, GameFile], path: Path, n: int | None, seed: int
) -> dict[str, GameFile]:
    """The games of a frozen list; n of them by this seed, where n is not None.

    Raises DataError for games that are missing or were changed, and for a list of other games than
    were asked for.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        rows = {str(k): str(v) for k, v in found["games"].items()}
        if found["format"] != FORMAT or not rows:
            raise ValueError(f"format {found['format']}, {len(rows)} games")
    except FileNotFoundError as error:
        raise DataError(
            f"alfworld: the tasks are not frozen yet ({path})", "run: sentinel freeze CONFIG"
        ) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"alfworld: {path} cannot be read ({error})", "run: sentinel freeze CONFIG"
        ) from error
    if n is not None and (len(rows), found.get("seed", seed)) != (n, seed):
        raise DataError(
            f"alfworld: {path} holds {len(rows)} games of seed {found.get('seed', seed)}, asked "
            f"for are n_tasks: {n} of seed: {seed}",
            "leave n_tasks out, or freeze the tasks again: sentinel freeze CONFIG",
        )
    missing = [game_id for game_id in rows if game_id not in games]
    changed = [k for k, sha256 in rows.items() if k in games and games[k].sha256 != sha256]
    if missing:
        raise DataError(
            f"alfworld: {len(missing)} of {len(rows)} games are missing, the first is {missing[0]}",
            GET_THEM,
        )
    if changed:
        raise DataError(
            f"alfworld: {len(changed)} games changed under their id, the first is {changed[0]}",
            "restore the games, or freeze them anew under another name",
        )
    return {game_id: games[game_id] for game_id in rows}
