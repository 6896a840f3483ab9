"""Figures are deterministic, inert SVG that survive any label."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from sentinel.report import figures
from sentinel.report.figures import BLUE, ORANGE, Estimate, Line, Panel

NAMES = ["</script><script>x</script>", "$\\frac{", "_a", "\u202e漢字\x00", "", "n" * 300]


def panels(name: str) -> list[Panel]:
    lines = [
        Line(name, [0, 0.5, 1], [0, None, 1], dots=True, marks=[(0.5, 0.5, name)]),
        Line("other", [0, 1], [0, 1], ORANGE, dashed=True),
    ]
    return [Panel(name, lines), Panel("empty", empty="nothing")]


@pytest.mark.parametrize("name", NAMES)
def test_any_label_gives_inert_svg(name: str) -> None:
    drawn = [
        figures.line_panels(panels(name), xlabel="x", ylabel="y", diagonal=True, whole_x=True),
        figures.forest([("λ", [(name, [Estimate(0.1, 0.0, 0.2), Estimate(None)])])], xlabel="x"),
        figures.bars([name], [(name, [None], BLUE), ("b", [1.0], ORANGE)], ylabel="y"),
    ]
    for svg in drawn:
        root = ElementTree.fromstring(svg)
        tags = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert not tags & {"script", "style", "image", "a", "foreignObject"}
        assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")


def test_same_numbers_same_bytes() -> None:
    def draw() -> str:
        return figures.line_panels(panels("a"), xlabel="x", ylabel="y")

    assert draw() == draw()


def test_ids_that_are_referred_to_exist_once() -> None:
    svg = figures.line_panels(panels("a"), xlabel="x", ylabel="y")
    used = set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', svg))
    ids = re.findall(r' id="([^"]+)"', svg)
    assert {a or b for a, b in used} <= set(ids)
    assert len(ids) == len(set(ids))


def test_foreground_follows_the_page() -> None:
    svg = figures.bars(["a"], [("x", [1.0], BLUE)], ylabel="y")
    assert "currentColor" in svg
    assert not {figures.INK, figures.FAINT, "#ffffff"} & set(re.findall(r"#[0-9a-f]{6}", svg))


def test_nothing_to_draw() -> None:
    assert "nothing to draw" in figures.line_panels([], xlabel="x", ylabel="y")
