"""Probes as files: back to the bit, and nothing that was changed is accepted."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sentinel.errors import UserError
from sentinel.probes import score, split
from sentinel.probes.export import load, save


@pytest.fixture(scope="module", params=["probe", "surface", "stacking", "tfidf"])
def saved(request, cell, tmp_path_factory):
    folder = tmp_path_factory.mktemp("probes")
    cut = split("strict", list(cell.episode), cell.task, cell.success, 0)
    found = score(cell, cut, request.param)
    save(folder, cell, found, {"error_words": ["error"]})
    return folder, found


def test_a_live_round_scores_exactly_as_the_table(saved, cell):
    folder, found = saved
    probes = load(folder, found.scorer)
    assert probes.rounds == (1, 2, 3, 4, 5, 6)
    assert probes.facts["agent_hash"] == cell.agent_hash
    for e in range(0, len(cell), 7):
        for r in range(1, 7):
            known = found.score[e, r - 1]
            if np.isnan(known):
                continue
            # float32 as a model would hand it over: it is rounded to float16 first
            vector = cell.vectors[e, r - 1].astype(np.float32)
            live = probes.score(r, vector, cell.surface[e, r - 1], text=cell.texts[e][r - 1])
            assert live == known


def test_what_cannot_be_read_gives_no_score(saved, cell):
    folder, found = saved
    probes = load(folder, found.scorer)
    assert probes.score(7, cell.vectors[0, 0], cell.surface[0, 0]) is None
    if found.scorer == "tfidf":
        assert probes.score(1, cell.vectors[0, 0], cell.surface[0, 0]) is None
        assert probes.score(1, text="") is not None  # no known term: the intercept alone
        return
    if found.scorer != "surface":
        assert probes.score(1, None, cell.surface[0, 0]) is None
        assert probes.score(1, np.full(16, np.nan), cell.surface[0, 0]) is None
    if found.scorer != "probe":
        assert probes.score(1, cell.vectors[0, 0], None) is None


@pytest.mark.parametrize("suffix", ["json", "safetensors"])
def test_a_changed_file_is_refused(saved, suffix, tmp_path):
    folder, found = saved
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    path = tmp_path / f"{found.scorer}.{suffix}"
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(UserError, match=r"changed|cannot be read"):
        load(tmp_path, found.scorer)
    path.unlink()
    with pytest.raises(UserError, match="cannot be read"):
        load(tmp_path, found.scorer)


def test_a_threshold_of_the_facts_cannot_be_swapped_unnoticed(saved, tmp_path):
    folder, found = saved
    facts = json.loads((folder / f"{found.scorer}.json").read_text())
    facts["layer"] = 99
    (tmp_path / f"{found.scorer}.json").write_text(json.dumps(facts))
    with pytest.raises(UserError, match="changed after"):
        load(tmp_path, found.scorer)


def test_the_task_alone_scores_exactly_as_the_table(cell, tmp_path):
    cut = split("strict", list(cell.episode), cell.task, cell.success, 0)
    found = score(cell, cut, "task")
    save(tmp_path, cell, found, {})
    probes = load(tmp_path, "task")
    assert not probes.deployable  # a control
    for r in range(1, 7):
        for e in np.flatnonzero(~np.isnan(found.score[:, r - 1]))[::7]:
            live = probes.tasks[0, r].score(cell.goal[e], cell.meta[e])
            assert live == pytest.approx(found.score[e, r - 1], abs=1e-12)
    paper = split("paper", list(cell.episode), cell.task, cell.success, 0)
    save(tmp_path, cell, score(cell, paper, "task"), {})
    assert [p.name for p in tmp_path.iterdir()] == ["task.json"]
    assert load(tmp_path, "task").tasks == {}


def test_text_models_are_kept_where_they_can_be_deployed(cell, tmp_path):
    """Paper mode exports no monitor: five vocabularies per round would be kept for nothing."""
    cut = split("paper", list(cell.episode), cell.task, cell.success, 0)
    found = score(cell, cut, "tfidf")
    assert len({k for k, _ in found.texts}) == 5
    save(tmp_path, cell, found, {})
    assert not load(tmp_path, "tfidf").deployable
    assert [p.name for p in tmp_path.iterdir()] == ["tfidf.json"]
