"""The command line of `sentinel run` and of each stage alone: its config, and where it runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jobs.config import RunConfig
from jobs.stages import run_stages
from sentinel.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those of every command on a run, and where it runs."""
    add_config_arguments(parser, ("local", "slurm", "debug"))
    parser.add_argument(
        "--agent", action="append", metavar="NAME", help="only this agent (may be repeated)"
    )
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="join this running Ray; auto: the one that RAY_ADDRESS names",
    )
    parser.add_argument(
        "--dashboard", action="store_true", help="start Ray's dashboard, on loopback with a token"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="with --on slurm: write the scripts, submit nothing"
    )
    parser.add_argument(
        "--wait", action="store_true", help="with --on slurm: follow the jobs to their end"
    )


def add_config_arguments(
    parser: argparse.ArgumentParser, places: Sequence[str] = ("local", "debug")
) -> None:
    """CONFIG, or --run-dir of a run that was begun; settings as `key.path=value`."""
    parser.add_argument("config", nargs="?", metavar="CONFIG", help="a run config (YAML)")
    parser.add_argument(
        "settings", nargs="*", metavar="key.path=value", help="settings that override the config"
    )
    parser.add_argument("--run-dir", type=Path, help="run directory (default: runs/NAME)")
    parser.add_argument("--on", choices=places, help="Ray here, jobs on a cluster, or a plain loop")
    parser.add_argument(
        "--again", metavar="REASON", help="evaluate a held-out pool once more, and why"
    )


def main(args: argparse.Namespace) -> int:
    """Run the stage named by the command, or all; or submit that to Slurm."""
    config, root = load(args)
    if args.agent:
        for name in args.agent:
            config.agent(name)  # told before anything starts
        if args.command == "run" or config.sweep:
            raise UserError("--agent goes with one stage", "name it: sentinel collect --agent NAME")
    if config.on == "slurm":
        from jobs import submit

        return submit.main(args, config, root)
    config = _placed(config, args.address, args.dashboard)
    if args.dry_run or args.wait:
        raise UserError("--dry-run and --wait go with --on slurm", "add --on slurm")
    if config.sweep:
        from jobs import sweep_run

        if args.command != "run":
            raise UserError(
                f"sentinel {args.command} works on one run, this is a sweep",
                f"name an element's folder: sentinel {args.command} --run-dir '{root}/sweep-…'",
            )
        return sweep_run.run(config, root)
    stages = config.stages if args.command == "run" else (args.command,)
    return run_stages(config, root, stages, args.agent)


def _placed(config: RunConfig, address: str | None, dashboard: bool) -> RunConfig:
    """The config with the Ray of the command line; a run directory does not keep it."""
    if address and config.on == "debug":
        raise UserError("--on debug uses no Ray", "leave out --address, or use --on local")
    site: dict[str, Any] = {"address": address} if address else {}
    if dashboard:
        site["dashboard"] = True
    return config.model_copy(update={"site": config.site.model_copy(update=site)})


def load(args: argparse.Namespace) -> tuple[RunConfig, Path]:
    """The config of a command line, and the run directory's path.

    Without CONFIG the one that the run directory recorded. Raises UserError when neither is there.
    """
    settings = list(args.settings)
    path = args.config
    if path is not None and "=" in path and not Path(path).exists():
        settings.insert(0, path)
        path = None
    settings += [f"on={args.on}"] if args.on else []
    if args.on == "slurm" and not any(s.split("=")[0] == "site" for s in settings):
        settings = [*_slurm_site(path, args.run_dir), *settings]
    if path is not None:
        config = RunConfig.from_file(path, settings)
        root = args.run_dir or Path("runs") / config.name
    elif args.run_dir is not None:
        config = recorded_config(args.run_dir, settings)
        root = args.run_dir
    else:
        raise UserError(
            "no config named", f"sentinel {args.command} CONFIG, or --run-dir DIR of a begun run"
        )
    if args.again:
        config = config.model_copy(update={"again": args.again})
    return config, root.expanduser().absolute()


def _slurm_site(path: str | None, root: Path | None) -> list[str]:
    """`site=slurm` where the config names no site, or this machine."""
    from jobs.config_files import available, read_mapping

    beside = Path.cwd()
    if path is not None:
        file = Path(path).expanduser().absolute()
        site, beside = read_mapping(file).get("site", "local"), file.parent
    elif root is not None:
        site = recorded_config(root).site.name
    else:
        return []
    if site != "local":
        return []
    # An installed package carries no site files: then the defaults of any Slurm.
    return ["site=slurm" if "slurm" in available("sites", beside) else "site={name: slurm}"]


def recorded_config(root: Path, settings: Sequence[str] = ()) -> RunConfig:
    """The config in a run directory. Raises UserError when there is none or it is damaged."""
    path = root / "config.json"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{root} is no run directory ({path.name}: {getattr(error, 'strerror', error)})",
            f"sentinel run CONFIG --run-dir '{root}'",
        ) from error
    return RunConfig.from_json(text, where=str(path), overrides=settings)
