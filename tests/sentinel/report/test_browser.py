"""The page in a real browser: no script, no request, no console message, readable at any width."""

from __future__ import annotations

from pathlib import Path

import chromium
import pytest

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium.find() is None, reason="Chromium is not installed"),
]
EXPRESSIONS = {
    "pwned": "typeof window.pwned",
    "scripts": "document.scripts.length",
    "images": "document.images.length",
    "figures": "document.querySelectorAll('svg.plot').length",
    "empty": "[...document.querySelectorAll('svg.plot')].filter(s => !s.getBBox().width).length",
    "overflow": "document.documentElement.scrollWidth - document.documentElement.clientWidth",
    "sections": "document.querySelectorAll('main section').length",
    "dangling": "[...document.querySelectorAll('nav a')].filter(a => !document.querySelector("
    "a.getAttribute('href'))).length",
    "names": "document.body.innerText.includes('<script>window.pwned=1</script>')",
    "background": "getComputedStyle(document.body).backgroundColor",
}


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (500, True)])
def test_page_is_quiet_and_fits(page: Path, tmp_path: Path, width: int, dark: bool) -> None:
    shot = tmp_path / "page.png"
    visit = chromium.open_page(
        page, tmp_path / "profile", EXPRESSIONS, width=width, dark=dark, screenshot=shot
    )
    assert visit.requests == [page.as_uri()]
    assert visit.console == []
    assert visit.exceptions == []
    assert visit.values["figures"] == 10  # two of them the paper's, one per agent
    assert visit.values["empty"] == 0
    assert visit.values["overflow"] <= 0
    assert visit.values["dangling"] == 0
    assert visit.values["background"] == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")
    assert shot.stat().st_size > 50_000


def test_hostile_data_is_inert(hostile_page: Path, tmp_path: Path) -> None:
    visit = chromium.open_page(hostile_page, tmp_path / "profile", EXPRESSIONS)
    assert visit.requests == [hostile_page.as_uri()]
    assert visit.console == []
    assert visit.exceptions == []
    assert visit.values["pwned"] == "undefined"
    assert visit.values["scripts"] == 0
    assert visit.values["images"] == 0
    assert visit.values["names"] is True  # shown as the text it is
    assert visit.values["sections"] >= 15


def test_the_browser_would_have_told(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<script>window.pwned=1; console.error('x'); y()</script><img src=none.png>")
    visit = chromium.open_page(page, tmp_path / "profile", {"pwned": "window.pwned"})
    assert visit.values["pwned"] == 1
    assert len(visit.requests) == 2
    assert visit.exceptions
    assert any("'x'" in line for line in visit.console)
