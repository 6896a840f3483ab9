"""The cascade's results as tables in a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


def show(found: dict[str, Any], console: Console | None = None) -> None:
    """Print what `driver.cascade` found: per cell a table of targets, then gates and promises."""
    console = console or Console(highlight=False)
    size = found["search"]
    if not found["searched"]:
        size += ": more than --memory-mb, so not searched; the chain needs no table"
    console.print(f"mode {found['mode']}; search over {size}", markup=False)
    settings = found["settings"]
    if found["mode"] == "strict" and len(settings["targets"]) > 1:
        n = len(settings["targets"])
        console.print(f"{n} targets on one sample share α = {settings['alpha_promise']}")
    for cell in found["cells"]:
        _cell(cell, console)


def _cell(cell: dict[str, Any], console: Console) -> None:
    say = _say(console)
    say("")
    say(f"cell {cell['cell']}, scorer {cell['scorer']}, mode {cell['mode']}, seed {cell['seed']}")
    counts = "; ".join(
        f"{name} {s['successes']} successes in {s['episodes']} episodes of {s['tasks']} tasks"
        for name, s in cell["samples"].items()
        if s["episodes"]
    )
    say(counts)
    if cell["episodes_without_outcome"]:
        say(f"{cell['episodes_without_outcome']} episodes without an outcome were left out")
    table = Table("target", "policy", "test recall", "test savings", "guarantee")
    for t in cell["targets"]:
        policies = {"deployed": t["test"], **t["others"]}
        for name, figures in policies.items():
            if figures is None or (name == "margin" and t["method"] == "margin"):
                continue
            table.add_row(
                t["target"] if name == "deployed" else "",
                t["method"] if name == "deployed" else name,
                share(figures["recall"]),
                share(figures["savings"]),
                _word(t["guarantee"]) if name == "deployed" else "",
            )
    console.print(table)
    for t in cell["targets"]:
        _target(t, console)
    for line in _closed(cell["gates"]):
        say(line)
    say(f"gates: {cell['gates']['text']}")
    if cell["seeds"]:
        _seeds(cell["seeds"], console)


def _target(t: dict[str, Any], console: Console) -> None:
    say = _say(console)
    say(f"target {t['target']}: {t['guarantee']['text']}")
    if t["reason"]:
        say(
            f"  the policy aborts nothing: {t['reason']}; a promise of {t['target']} needs "
            f"{t['needs']} independent successes with none lost"
        )
    else:
        budget = t["policy"]["budget"]
        taus = t["policy"]["thresholds"]
        rows = Table("gate", "budget", "threshold", "alive", "aborted", "lost", "saved")
        for i, row in enumerate(t["test"]["gates"]):
            tau = taus[i]
            rows.add_row(
                str(row["gate"]),
                budget[i] if budget else "",
                tau if isinstance(tau, str) else f"{tau:.6g}",
                *(f"{row[k]:,}" for k in ("alive", "aborted", "lost", "saved")),
            )
        console.print(rows)
    if t["margin"]["reduced"]:
        say(f"  margin reduced from {t['margin']['asked']} to {t['margin']['used']:g}")
    for s in t["stricter"]:
        if s["missing"]:
            say(
                f"  for {s['target']}: {s['needs_none_lost']} independent successes with none "
                f"lost ({s['missing']} more), {s['needs_same_lost']} with {s['lost']} lost"
            )


def _word(guarantee: dict[str, Any]) -> str:
    if guarantee.get("guaranteed"):
        return "guaranteed"
    if guarantee.get("holds"):
        return ", ".join(guarantee["conditions"])
    return "none"


def _closed(gates: dict[str, Any]) -> list[str]:
    return [
        f"gate {g['gate']} has no threshold: {g['successes']} calibration successes, "
        f"budget {g['budget']} needs {g['needs']}"
        for g in gates["closed"]
    ]


def _seeds(seeds: dict[str, Any], console: Console) -> None:
    _say(console)(f"over {seeds['n']} seeds, mean ± sd (spread of the splits):")
    table = Table("target", "allocation", "recall", "savings", "no-op", "no recall")
    for row in seeds["summary"]:
        table.add_row(
            row["target"],
            row["allocation"],
            spread(row["recall_mean"], row["recall_sd"]),
            spread(row["savings_mean"], row["savings_sd"]),
            str(row["no_op"]),
            str(row["no_recall"]),
        )
    console.print(table)


def show_plan(found: dict[str, Any], console: Console | None = None) -> None:
    """Print what `planner.plan` found."""
    console = console or Console(highlight=False)
    say = _say(console)
    lost, gaps = list(found["targets"][0]["lost"]), {}
    for row in found["targets"]:
        gaps.update(dict.fromkeys(row["power"]))
    table = Table("target", *(f"{n} lost" for n in lost), *(f"true +{g}" for g in gaps))
    for row in found["targets"]:
        table.add_row(
            row["target"],
            *(f"{row['lost'][n]:,}" for n in lost),
            *("–" if row["power"].get(g) is None else f"{row['power'][g]:,}" for g in gaps),
        )
    say(f"independent successes that a promise at α = {found['alpha']} costs:")
    if found["shared_by"] > 1:
        say(f"({found['shared_by']} share it: {found['alpha_each']:.4g} each)")
    console.print(table)
    say(f"true +δ: enough for a {100 * float(found['power']):g} % chance at true recall target + δ")
    if found.get("successes"):
        say(
            f"{found['successes']} successes, none lost, promise at most {found['certifiable']:.4f}"
        )


def share(value: float | None) -> str:
    """A share in percent; a dash where it is undefined."""
    return "–" if value is None else f"{100 * value:.1f} %"


def spread(mean: float | None, sd: float | None) -> str:
    """`95.1 % ± 1.2`; a dash where there is no mean."""
    if mean is None:
        return "–"
    return f"{100 * mean:.1f} %" + ("" if sd is None else f" ± {100 * sd:.1f}")


def _say(console: Console) -> Any:
    # Names come from the user's table: no markup, and one paragraph per call.
    return lambda line: console.print(Text(line))
