"""The one direction, late imports, and torch rooms that need no Ray."""

from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TORCH_ROOMS = {
    "sentinel.heads.model",
    "sentinel.heads.fit",
    "sentinel.heads.batches",
    "sentinel.heads.strategy",
    "sentinel.heads.checkpoint",
    "sentinel.activations.extract",
    "sentinel.nano.model",
    "sentinel.nano.train",
}
WITHOUT_RAY = (
    "import importlib, sys\n"
    "sys.modules['ray'] = None\n"
    "for name in sys.argv[1:]: importlib.import_module(name)\n"
)
HEAVY = ("torch", "transformers", "ray", "vllm")


def modules(package: str) -> list[str]:
    path = [str(ROOT / package)]
    found = [m.name for m in pkgutil.walk_packages(path, prefix=f"{package}.")]
    return [package, *found]


def python(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=120
    )


def test_import_contracts_hold():
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_light_modules_load_no_heavy_library():
    names = [m for p in ("sentinel", "jobs") for m in modules(p) if m not in TORCH_ROOMS]
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[2:]:\n"
        "    importlib.import_module(name)\n"
        "    loaded = [h for h in sys.argv[1].split(',') if h in sys.modules]\n"
        "    if loaded: sys.exit(f'{name} loads {loaded}')\n"
    )
    done = python(code, ",".join(HEAVY), *names)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_torch_rooms_run_without_ray():
    rooms = [m for m in modules("sentinel") if m in TORCH_ROOMS]
    assert rooms
    done = python(WITHOUT_RAY, *rooms)
    assert done.returncode == 0, done.stderr


def test_engines_load_without_ray():
    done = python(WITHOUT_RAY, *(m for m in modules("cluster") if ".engines" in m))
    assert done.returncode == 0, done.stderr


def test_every_module_says_what_it_is():
    silent = []
    for name in (m for p in ("sentinel", "cluster", "jobs") for m in modules(p)):
        spec = find_spec(name)
        assert spec is not None
        tree = ast.parse(Path(str(spec.origin)).read_text(encoding="utf-8"))
        if tree.body and ast.get_docstring(tree) is None:
            silent.append(name)
    assert silent == []
