from __future__ import annotations

import json
import sqlite3
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny_tokenizers import NO_SYSTEM, write_tokenizer

from cluster import provenance
from cluster.run_dir import RunDir
from sentinel.agent.chat import ChatEncoder


def test_env_names_code_packages_data_and_machine(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    provenance.record(run, {"clinic": "f1"})
    env = json.loads(run.env_path.read_text())
    assert env["sqlite"] == sqlite3.sqlite_version
    assert env["packages"]["numpy"]
    assert env["hardware"]["cpus"] >= 1
    assert env["datasets"] == {"clinic": "f1"}
    provenance.record(run, {"craft": "f2"})
    env = json.loads(run.env_path.read_text())
    assert env["datasets"] == {"clinic": "f1", "craft": "f2"}
    assert env["earlier"] == [], "the same code on the same machine is one description"


def test_a_run_resumed_on_other_code_keeps_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDir(tmp_path)
    provenance.record(run)
    monkeypatch.setattr(provenance, "git_state", lambda folder: {"commit": "other"})
    provenance.record(run)
    env = json.loads(run.env_path.read_text())
    assert env["git"] == {"commit": "other"}
    assert len(env["earlier"]) == 1


def test_git_state_sees_changes_and_new_files(tmp_path: Path) -> None:
    assert provenance.git_state(tmp_path) is None

    def git(*args: str) -> None:
        settings = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *settings, *args], check=True, timeout=20)

    git("init", "-q")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-q", "-m", "a")
    clean = provenance.git_state(tmp_path)
    assert clean is not None
    assert not clean["dirty"]
    (tmp_path / "a").write_text("2")
    changed = provenance.git_state(tmp_path)
    (tmp_path / "b").write_text("new")
    more = provenance.git_state(tmp_path)
    assert changed is not None
    assert more is not None
    assert changed["dirty"]
    assert clean["commit"] == changed["commit"]
    assert len({clean["diff_sha256"], changed["diff_sha256"], more["diff_sha256"]}) == 3


def test_what_a_workers_engine_does_with_conversations_is_recorded(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    encoder = ChatEncoder.from_folder(write_tokenizer(tmp_path / "m", NO_SYSTEM))
    provenance.note_template(run, "odd/name", SimpleNamespace(encoder=encoder, ends=[3]))
    provenance.note_template(run, "api", SimpleNamespace())
    provenance.record(run)
    env = json.loads(run.env_path.read_text())
    assert env["templates"].keys() == {"odd/name"}
    found = env["templates"]["odd/name"]
    assert (found["system_role"], found["prefix_property"], found["bos"]) == (False, True, 1)
    assert (found["ends"], found["stops"]) == (["<|im_end|>"], True)
