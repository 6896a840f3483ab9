"""Small ALFWorld games of our own: a PDDL problem each, with the package's domain and grammar."""

from __future__ import annotations

import json
from pathlib import Path

TYPES = ("SinkBasinType", "MicrowaveType", "FridgeType", "TableType", "CabinetType")
PLACES = {"table": "TableType", "cabinet": "CabinetType", "fridge": "FridgeType"}


def problem(thing: str, start: str, goal: str, name: str = "game") -> str:
    """Take `thing` from the place `start` to the place `goal`; the cabinet and the fridge shut."""
    receptacles = {place: f"{place}_bar_1" for place in PLACES}
    facts = ["(atLocation agent1 loc_start)"]
    for place, kind in PLACES.items():
        one = receptacles[place]
        facts += [f"(receptacleType {one} {kind})", f"(receptacleAtLocation {one} loc_{place})"]
        facts += [f"(canContain {kind} ThingType)"]
        facts += [f"(openable {one})"] if place != "table" else []
    facts += [
        f"(objectType {thing}_bar_1 ThingType)",
        f"(pickupable {thing}_bar_1)",
        f"(inReceptacle {thing}_bar_1 {receptacles[start]})",
        f"(objectAtLocation {thing}_bar_1 loc_{start})",
    ]
    objects = [
        "agent1 - agent",
        *(f"loc_{p} - location" for p in ("start", *PLACES)),
        *(f"{one} - receptacle" for one in receptacles.values()),
        f"{thing}_bar_1 - object",
        *(f"{t} - rtype" for t in TYPES),
        *(f"{t} - otype" for t in ("ThingType", "KnifeType", "ButterKnifeType")),
    ]
    return (
        f"(define (problem {name})\n (:domain alfred)\n"
        f" (:objects {' '.join(objects)})\n"
        f" (:init (= (total-cost) 0) {' '.join(facts)})\n"
        f" (:goal (and (inReceptacle {thing}_bar_1 {receptacles[goal]})))\n"
        " (:metric minimize (total-cost)))\n"
    )


def write_game(
    folder: Path, thing: str = "mug", start: str = "table", goal: str = "fridge"
) -> Path:
    """Write `game.tw-pddl` into a folder; returns the file."""
    from alfworld.info import ALFRED_PDDL_PATH, ALFRED_TWL2_PATH

    grammar = Path(ALFRED_TWL2_PATH).read_text()
    game = {
        "pddl_domain": Path(ALFRED_PDDL_PATH).read_text(),
        "grammar": grammar.replace("UNKNOWN GOAL", f"put a {thing} in the {goal}"),
        "pddl_problem": problem(thing, start, goal),
        "solvable": True,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "game.tw-pddl"
    path.write_text(json.dumps(game))
    return path


def write_games(root: Path) -> Path:
    """Four games of two kinds."""
    for i, (thing, start, goal) in enumerate(
        [("mug", "table", "fridge"), ("mug", "cabinet", "fridge"),
         ("book", "table", "cabinet"), ("book", "fridge", "cabinet")]
    ):  # fmt: skip
        write_game(root / f"put-{thing}-{goal}" / f"trial_{i}", thing, start, goal)
    return root
