"""The command line: late imports, one line for what a user can mend, tracebacks for bugs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from jobs import __main__ as cli
from jobs.config import STAGES
from sentinel.errors import UserError


def sentinel(*args: str, cwd=None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "jobs", *args], capture_output=True, text=True, cwd=cwd, timeout=60
    )


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert all(name in text for name in cli.COMMANDS)
    assert set(STAGES) <= set(cli.COMMANDS)


@pytest.mark.parametrize("command", sorted(cli.COMMANDS))
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([command, "--help"])
    assert stop.value.code == 0
    assert f"sentinel {command}" in capsys.readouterr().out


def test_help_loads_no_heavy_library():
    code = (
        "import sys; from jobs.__main__ import build_parser; build_parser().format_help();"
        "heavy = {'torch', 'ray', 'transformers', 'numpy', 'pyarrow', 'pydantic', 'sklearn'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_an_unknown_command_is_refused(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["rum", "x.yaml"])
    assert stop.value.code == 2
    assert "rum" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", *STAGES])
def test_a_missing_config_is_one_line_and_exit_2(command, tmp_path, capsys):
    assert cli.main([command, str(tmp_path / "none.yaml")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "no such config" in err


@pytest.mark.parametrize("command", ["run", *STAGES])
def test_no_config_at_all_is_answered(command, capsys):
    assert cli.main([command]) == 2
    assert f"sentinel {command} CONFIG" in capsys.readouterr().err


def test_a_folder_that_is_no_run_directory(tmp_path, capsys):
    assert cli.main(["label", "--run-dir", str(tmp_path)]) == 2
    assert "is no run directory" in capsys.readouterr().err


def test_a_damaged_recorded_config(tmp_path, capsys):
    (tmp_path / "config.json").write_text('{"name": ')
    assert cli.main(["label", "--run-dir", str(tmp_path)]) == 2
    assert "is no JSON" in capsys.readouterr().err


def test_an_unknown_key_leaves_no_trace_of_a_run(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text("benchmarks: [{name: b}]\nagents: [nano-sage]\n")
    assert cli.main(["run", "r.yaml", "collect.wrkers=1"]) == 2
    assert "did you mean workers?" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["r.yaml"]


def test_a_bug_keeps_its_traceback(monkeypatch):
    def broken(path, overrides=()):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("jobs.config.RunConfig.from_file", broken)
    with pytest.raises(ZeroDivisionError):
        cli.main(["run", "x.yaml"])


def test_a_user_error_inside_a_worker_error_is_still_one_line(monkeypatch, capsys):
    def wrapped(path, overrides=()):
        raise RuntimeError("task failed") from UserError("no data", "sentinel doctor CONFIG")

    monkeypatch.setattr("jobs.config.RunConfig.from_file", wrapped)
    assert cli.main(["run", "x.yaml"]) == 2
    assert capsys.readouterr().err == "sentinel: no data; sentinel doctor CONFIG\n"


def test_interruption_names_itself(monkeypatch, capsys):
    def stop(path, overrides=()):
        raise KeyboardInterrupt

    monkeypatch.setattr("jobs.config.RunConfig.from_file", stop)
    assert cli.main(["run", "x.yaml"]) == 130
    assert "goes on from here" in capsys.readouterr().err


def test_the_module_and_the_script_are_the_same(tmp_path):
    done = sentinel("run", "none.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("sentinel: no such config")
    assert "Traceback" not in done.stderr


def test_version_is_printed():
    assert sentinel("--version").stdout.split()[0] == "sentinel"


def test_a_reader_that_goes_away_is_no_error(tmp_path):
    script = f"{sys.executable} -m jobs --help | true"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
