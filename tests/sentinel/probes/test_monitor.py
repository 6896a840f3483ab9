"""A deployed cascade of any scorer that is plain arrays, through the one entry of all monitors."""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sentinel.cascade import CascadeConfig, cascade
from sentinel.errors import UserError
from sentinel.monitor import archive, load
from sentinel.probes import ScorerConfig, monitor, score, split, table
from sentinel.probes.export import save
from sentinel.probes.monitor import CascadeMonitor
from sentinel.user_tables import dumps

TARGET = "0.8"


@pytest.fixture(scope="module", params=["surface", "tfidf", "heads"])
def deployed(request: Any, cell: Any, tmp_path_factory: Any) -> tuple[Path, Any]:
    root = tmp_path_factory.mktemp("deployed")
    cut = split("strict", list(cell.episode), cell.task, cell.success, 0)
    how = ScorerConfig(heads={"kind": "tfidf"}, folder=root / "probes" / request.param)
    found = score(cell, cut, request.param, how)
    save(root / "probes", cell, found, {"error_words": ["error"]})
    options = CascadeConfig.of([TARGET], "strict", gates=cell.gates)
    text = dumps(cascade(table(cell, found), options))
    (root / "document.json").write_text(text)
    document = json.loads(text)
    monitor.save(
        root / "cascade", root / "probes", request.param, document, cell.benchmark, cell.agent
    )
    return root / "cascade", found


def test_it_aborts_where_the_table_does(deployed: Any, cell: Any) -> None:
    folder, found = deployed
    loaded = load(folder)
    assert isinstance(loaded, CascadeMonitor)
    assert (loaded.benchmark, loaded.agent_hash) == (cell.benchmark, cell.agent_hash)
    policy = loaded.policy(TARGET)
    # the median success of each round as its gate: something fires, and ties are met
    known = [np.sort(column[~np.isnan(column)]) for column in found.score.T]
    gates = tuple(float(column[len(column) // 2]) for column in known)
    for frozen in (policy, type(policy)(**{**policy.__dict__, "thresholds": gates})):
        live = CascadeMonitor("w", "a", "h", {TARGET: frozen}, loaded.probes, loaded.heads)
        fired = 0
        for e in range(0, len(cell), 5):
            for r in range(1, min(int(cell.T[e]), cell.gates) + 1):
                f = found.score[e, r - 1]
                if np.isnan(f):
                    continue
                surface, text = cell.surface[e, r - 1], cell.texts[e][r - 1]
                says = live.aborts(r, TARGET, surface=surface, text=text)
                assert says == frozen.aborts(r, float(f))
                fired += says
        assert fired or frozen is policy


def test_what_does_not_belong_is_refused(deployed: Any) -> None:
    folder, _ = deployed
    for name, says in (("probe.pkl", "could run code"), ("notes.json", "unknown file")):
        (folder / name).write_bytes(pickle.dumps({}))
        with pytest.raises(UserError, match=says):
            load(folder)
        (folder / name).unlink()
    assert load(folder)
    for path in [p for p in folder.rglob("*") if p.is_file()]:
        whole = path.read_bytes()
        path.write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
        with pytest.raises(UserError, match=r"changed|cannot be read"):
            load(folder)
        path.write_bytes(whole)


KILLED = """
import json, os, signal, sys
from pathlib import Path
from sentinel.monitor import archive
from sentinel.probes import monitor
root, scorer, at = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
calls, put = [], archive.put
def dies(path, content):
    if len(calls) == at:
        os.kill(os.getpid(), signal.SIGKILL)
    calls.append(path)
    put(path, content)
archive.put = dies
document = json.loads((root / "document.json").read_text())
monitor.save(root / "cascade", root / "probes", scorer, document, "another", "agent")
"""


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, -1])
def test_a_kill_in_the_middle_leaves_the_old_one(deployed: Any, at: int) -> None:
    folder, found = deployed
    files = [p for p in folder.rglob("*") if p.is_file()]
    before = load(folder).hash
    asked = [str(folder.parent), found.scorer, str(at % len(files))]  # −1: but for cascade.json
    done = subprocess.run([sys.executable, "-c", KILLED, *asked], capture_output=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert load(folder).hash == before


def test_an_error_in_the_middle_leaves_the_old_one_and_another_scorer_replaces_it(
    deployed: Any, cell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, found = deployed
    target = tmp_path / "m" / "cascade"
    document = json.loads((folder.parent / "document.json").read_text())
    other = "tfidf" if found.scorer == "surface" else "surface"
    how = ScorerConfig(folder=tmp_path / "probes")
    cut = split("strict", list(cell.episode), cell.task, cell.success, 0)
    save(tmp_path / "probes", cell, score(cell, cut, other, how), {"error_words": ["error"]})
    monitor.save(target, tmp_path / "probes", other, document, "first", "a")

    whole = archive.put
    monkeypatch.setattr(archive, "put", failing := FailsAt(0, whole))
    for at in range(99):
        failing.left = at
        try:
            monitor.save(target, folder.parent / "probes", found.scorer, document, "second", "a")
            break
        except OSError:
            assert load(target).benchmark == "first"
            assert [p.name for p in target.parent.iterdir()] == ["cascade"]
    assert at >= 3
    assert load(target).benchmark == "second"  # no file of the first is left to refuse it
    assert [p.name for p in target.parent.iterdir()] == ["cascade"]


class FailsAt:
    """`archive.put` on a disk that is full after some files."""

    def __init__(self, left: int, put: Any) -> None:
        self.left, self.put = left, put

    def __call__(self, path: Path, content: Any) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError("disk full")
        self.put(path, content)
