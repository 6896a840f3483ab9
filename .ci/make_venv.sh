#!/usr/bin/env bash
# Make the virtual environment $1 with the first Python that fits and install the project into it.
# Every foreseeable obstacle is answered in one line.
set -euo pipefail
venv=${1:-.venv}
constraints=${2:-constraints/cpu.txt}

refuse() { echo "make_venv: $*" >&2; exit 2; }

fits() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }

if [ ! -x "$venv/bin/python" ]; then
  free_mb=$(df -Pm . | awk 'NR == 2 {print $4}')
  [ "$free_mb" -ge 3000 ] || refuse "too little disk: ${free_mb} MB free, 3000 needed with a CPU build of torch (10000 with the CUDA build); free some space and run make again"
  python=
  for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3.12 python3.13 python3; do
    if command -v "$candidate" >/dev/null && fits "$candidate"; then python=$candidate; break; fi
  done
  [ -n "$python" ] || refuse "no Python 3.11, 3.12 or 3.13 found; install one, or run make PYTHON=/path/to/python3.11"
  "$python" -c 'import venv, ensurepip' 2>/dev/null || refuse "$python has no venv module; install it (Debian, Ubuntu: apt install python3-venv) and run make again"
  echo "make_venv: $venv with $("$python" --version)"
  "$python" -m venv "$venv" || { rm -rf "$venv"; refuse "$python could not make $venv"; }
fi

pip=("$venv/bin/python" -m pip --disable-pip-version-check)
"${pip[@]}" install --quiet -c "$constraints" setuptools wheel
# Without build isolation the pinned setuptools builds it, and nothing is downloaded twice.
"${pip[@]}" install --quiet --no-build-isolation -c "$constraints" -e '.[dev]'
touch "$venv/.ready"
