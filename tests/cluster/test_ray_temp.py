from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cluster import ray_temp
from cluster.ray_temp import TempDir, sweep_leftovers

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(ray_temp, "MAX_TEMP", 4096)  # pytest's folders are long
    return tmp_path


def test_made_locked_and_removed(root: Path) -> None:
    temp = TempDir.make(7, root)
    assert temp.path.parent == root
    assert temp.path.stat().st_mode & 0o777 == 0o700
    assert sweep_leftovers(root) == []
    (temp.path / "session").mkdir()
    temp.remove()
    assert list(root.iterdir()) == []


def test_what_a_killed_process_left_goes_when_the_next_is_made(root: Path) -> None:
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from cluster import ray_temp\n"
        "ray_temp.MAX_TEMP = 4096\n"
        "ray_temp.TempDir.make(1, Path(sys.argv[1]))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    command = [sys.executable, "-c", code, str(root)]
    subprocess.run(command, env={"PYTHONPATH": str(ROOT)}, check=False)
    (left,) = root.iterdir()
    temp = TempDir.make(2, root)
    assert not left.exists()
    assert list(root.iterdir()) == [temp.path]
    temp.remove()


def test_only_dead_folders_of_ours_are_swept(root: Path) -> None:
    old = time.time() - 2 * ray_temp.NEW_SECONDS
    for name in ("sr1_abc", "sr2_abc", "srx_abc", "sr3", "other"):
        (root / name).mkdir()
    (root / "sr4_abc").symlink_to(root / "other")
    for name in ("sr1_abc", "srx_abc", "sr3", "other"):
        os.utime(root / name, (old, old))
    # sr2_abc is so new that its lock may be about to come.
    assert [p.name for p in sweep_leftovers(root)] == ["sr1_abc"]
    left = {p.name for p in root.iterdir()}
    assert left == {"sr2_abc", "srx_abc", "sr3", "other", "sr4_abc"}


def test_a_process_of_another_namespace_keeps_its_folder(root: Path) -> None:
    # The number in a name may be nobody's process here: only the lock counts.
    temp = TempDir.make(2**22 + 1, root)
    assert sweep_leftovers(root) == []
    temp.remove()


@pytest.mark.parametrize("name", ["d" * 60, "missing"])
def test_a_root_that_cannot_serve_is_replaced(tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    if name != "missing":
        root.mkdir()
    made = TempDir.make(os.getpid(), root)
    assert made.path.parent == Path("/tmp")
    assert len(str(made.path)) <= ray_temp.MAX_TEMP
    made.remove()
