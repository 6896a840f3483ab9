from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.journal import Journal, JournalBroken, Reader


def reader() -> Reader[dict[str, Any]]:
    return Reader(json.loads, lambda record: record["id"])


def test_lines_come_back_in_order_and_duplicates_keep_the_first(tmp_path: Path) -> None:
    for name, value in (("a", 1), ("b", 2)):
        with Journal(tmp_path / f"{name}.jsonl") as journal:
            journal.append(json.dumps({"id": "x", "v": value}))
            journal.append(json.dumps({"id": name, "v": value}))
    found = reader()
    records = list(found.read(sorted(tmp_path.iterdir())))
    assert records == [{"id": "x", "v": 1}, {"id": "a", "v": 1}, {"id": "b", "v": 2}]
    assert (found.account.records, found.account.duplicates, found.account.bad) == (3, 1, 0)


def test_a_torn_last_line_and_a_bad_line_cost_themselves(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    path.write_bytes(
        b'{"id": "a"}\n{"id": "b", \n\xff\xfe\n[1]\n{"no": "id"}\n{"id": "c"}\n{"id": "d"}'
    )
    found = reader()
    assert [r["id"] for r in found.read([path])] == ["a", "c"]
    assert (found.account.torn, found.account.bad) == (1, 4)
    assert found.account.bad_lines[0].startswith(f"{path}:2")


@settings(max_examples=40)
@given(st.lists(st.text(), max_size=8))
def test_any_text_survives_and_only_newline_splits(texts: list[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "j.jsonl"
        with Journal(path) as journal:
            for i, text in enumerate([*texts, "a\u2028b\u0085c\x0bd\re", "\ud800"]):
                journal.append(json.dumps({"id": i, "t": text}, ensure_ascii=False))
        records = list(reader().read([path]))
        assert [r["t"] for r in records][: len(texts)] == texts
        assert records[-1]["t"] == "\ud800"


def test_a_worker_owns_its_file(tmp_path: Path) -> None:
    with Journal(tmp_path / "w.jsonl") as journal:
        journal.append("{}")
    with pytest.raises(FileExistsError):
        Journal(tmp_path / "w.jsonl").append("{}")
    with pytest.raises(ValueError, match="closed"):
        journal.append("{}")
    with pytest.raises(ValueError, match="newline"):
        Journal(tmp_path / "v.jsonl").append("a\nb")


def test_an_unused_journal_makes_no_file(tmp_path: Path) -> None:
    with Journal(tmp_path / "w.jsonl"):
        pass
    assert not list(tmp_path.iterdir())


def test_lines_are_synced_within_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[float] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(time.monotonic()), real(fd))[1])
    with Journal(tmp_path / "w.jsonl") as journal:
        for i in range(3):
            before, written = len(synced), time.monotonic()
            journal.append(json.dumps({"id": i}))
            while len(synced) == before and time.monotonic() - written < 5:
                time.sleep(0.01)
            assert synced[-1] - written < 1.0


def test_a_killed_writer_loses_no_whole_line(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from cluster.journal import Journal\n"
        "j = Journal(Path(sys.argv[1]))\n"
        "for i in range(10**6):\n"
        "    j.append('{\"id\": %d}' % i); print(i, flush=True)\n"
    )
    path = tmp_path / "w.jsonl"
    root = str(Path(__file__).resolve().parents[2])
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert process.stdout is not None
    while int(process.stdout.readline()) < 500:
        pass
    process.send_signal(signal.SIGKILL)
    told = process.stdout.read().split(b"\n")[:-1]
    process.stdout.close()
    process.wait()
    kept = [r["id"] for r in reader().read([path])]
    assert kept == list(range(len(kept)))
    assert len(kept) > int(told[-1] if told else 500)


FULL = """
import json, resource, sys
from pathlib import Path
from cluster.journal import Journal, JournalBroken

path, limit, size = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
journal, told = Journal(path), []
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
for number in range(100):
    line = json.dumps({"id": number, "text": "x" * (number * 37 % size)})
    try:
        journal.append(line)
    except JournalBroken as error:
        told.append(str(error))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    else:
        assert not told, "a line after the broken one was taken"
        print(number)
try:
    journal.close()
except JournalBroken as error:
    told.append(str(error))
assert all("cannot write" in t and str(path) in t for t in told), told
print(json.dumps(told))
"""


@pytest.mark.parametrize(("limit", "size"), [(1, 20), (300, 50), (4096, 3000), (10_000, 800)])
def test_a_disk_that_takes_no_more_leaves_no_half_line(
    tmp_path: Path, limit: int, size: int
) -> None:
    """What `append` accepted is read back, and nothing else, although room comes back later."""
    path = tmp_path / "w.jsonl"
    out = subprocess.run(
        [sys.executable, "-c", FULL, str(path), str(limit), str(size)],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert out.returncode == 0, out.stderr
    *accepted, told = out.stdout.splitlines()
    assert json.loads(told)
    found = reader()
    assert [str(r["id"]) for r in found.read([path])] == accepted
    assert found.account.bad == 0


def test_a_failed_sync_is_said_at_the_next_line_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    journal = Journal(tmp_path / "w.jsonl", sync_seconds=0.01)
    journal.append("{}")

    def write_on() -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            time.sleep(0.01)
            journal.append("{}")

    with pytest.raises(JournalBroken, match="No space left"):
        write_on()
    with pytest.raises(JournalBroken, match="No space left"):
        journal.close()
