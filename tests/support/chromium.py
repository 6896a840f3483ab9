"""A real browser for tests: Chromium over its debugging pipe, no driver package needed.

`open_page(path)` loads a page, waits until it is quiet, and returns what a reader's browser did
with it: console messages, exceptions, every network request, and the values of expressions.
`tab(profile)` is a browser at hand: go somewhere, wait, type, look.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def find() -> str | None:
    """The Chromium of this machine, if it has one."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next((found for n in names if (found := shutil.which(n))), None)


@dataclass
class Visit:
    """What happened while the page was open."""

    requests: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)
    exceptions: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)


class _Pipe:
    """Chromium's debugging protocol: NUL-ended JSON on descriptors 3 and 4."""

    def __init__(self, profile: Path, width: int, dark: bool) -> None:
        browser = find()
        assert browser is not None
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        os.set_inheritable(to_browser, True)
        os.set_inheritable(from_browser, True)
        self._buffer = b""
        self._next = 0
        self.events: list[Mapping[str, Any]] = []
        command = [
            browser,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-extensions",
            "--hide-scrollbars",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
            f"--window-size={width},1000",
            *(["--blink-settings=preferredColorScheme=0"] if dark else []),
        ]
        # Descriptors 3 and 4 are fixed by the protocol: a shell moves ours there.
        shell = f'exec 3<&{to_browser} 4>&{from_browser}; exec "$0" "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, *command],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)

    def send(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self._next += 1
        message: dict[str, Any] = {"id": self._next, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._next:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])
            self.events.append(answer)

    def _receive(self) -> Mapping[str, Any]:
        while b"\0" not in self._buffer:
            chunk = os.read(self._read, 1 << 16)
            if not chunk:
                raise RuntimeError("the browser has gone")
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\0", 1)
        return dict(json.loads(line))

    def close(self) -> None:
        try:
            self.send("Browser.close")
        except (RuntimeError, OSError):
            self.process.kill()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._write)
        os.close(self._read)


def open_page(
    page: Path,
    profile: Path,
    expressions: Mapping[str, str] | None = None,
    *,
    width: int = 1280,
    dark: bool = False,
    screenshot: Path | None = None,
    quiet_seconds: float = 0.5,
) -> Visit:
    """Open a local file in Chromium with scripts on. `profile` is an empty folder."""
    pipe = _Pipe(profile, width, dark)
    visit = Visit()
    try:
        target = pipe.send("Target.createTarget", url="about:blank")["targetId"]
        session = pipe.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            pipe.send(f"{domain}.enable", session)
        if dark:
            pipe.send(
                "Emulation.setEmulatedMedia",
                session,
                features=[{"name": "prefers-color-scheme", "value": "dark"}],
            )
        pipe.send("Page.navigate", session, url=page.absolute().as_uri())
        ready = "document.readyState === 'complete'"
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not _evaluate(pipe, session, ready):
            time.sleep(0.05)
        time.sleep(quiet_seconds)
        for name, expression in (expressions or {}).items():
            visit.values[name] = _evaluate(pipe, session, expression)
        if screenshot is not None:
            shot = pipe.send(
                "Page.captureScreenshot", session, format="png", captureBeyondViewport=True
            )
            screenshot.write_bytes(base64.b64decode(shot["data"]))
        for event in pipe.events:
            _record(visit, event)
    finally:
        pipe.close()
    return visit


@dataclass
class Tab:
    """An open page."""

    pipe: _Pipe
    session: str

    def go(self, url: str) -> None:
        """Begin to load an address."""
        self.pipe.send("Page.navigate", self.session, url=url)

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript gives now."""
        return _evaluate(self.pipe, self.session, expression)

    def until(self, expression: str, seconds: float = 60.0) -> Any:
        """Wait until an expression is true, and return it; None when it is not after `seconds`.

        While a page changes an expression may fail: it is asked again.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                if found := self.value(expression):
                    return found
            except RuntimeError:
                if self.pipe.process.poll() is not None:
                    raise
            time.sleep(0.1)
        return None

    def type(self, text: str) -> None:
        """Type into what has the focus, and press Enter."""
        self.pipe.send("Input.insertText", self.session, text=text)
        enter = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
        for kind in ("keyDown", "keyUp"):
            self.pipe.send("Input.dispatchKeyEvent", self.session, type=kind, **enter)

    def screenshot(self, path: Path, **clip: float) -> None:
        """A PNG of the page, or of the part given by x, y, width, height and scale."""
        shot = self.pipe.send(
            "Page.captureScreenshot", self.session, format="png", **({"clip": clip} if clip else {})
        )
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def tab(profile: Path, width: int = 1280) -> Iterator[Tab]:
    """A browser with one empty page. `profile` is an empty folder."""
    pipe = _Pipe(profile, width, dark=False)
    try:
        target = pipe.send("Target.createTarget", url="about:blank")["targetId"]
        session = pipe.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime"):
            pipe.send(f"{domain}.enable", session)
        yield Tab(pipe, session)
    finally:
        pipe.close()


def _evaluate(pipe: _Pipe, session: str, expression: str) -> Any:
    answer = pipe.send("Runtime.evaluate", session, expression=expression, returnByValue=True)
    if "exceptionDetails" in answer:
        raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
    return answer["result"].get("value")


def _record(visit: Visit, event: Mapping[str, Any]) -> None:
    method, params = event.get("method"), event.get("params", {})
    if method == "Network.requestWillBeSent":
        visit.requests.append(params["request"]["url"])
    elif method == "Runtime.consoleAPICalled":
        visit.console.append(f"{params['type']}: {params['args']}")
    elif method == "Log.entryAdded":
        visit.console.append(f"{params['entry']['level']}: {params['entry']['text']}")
    elif method == "Runtime.exceptionThrown":
        visit.exceptions.append(str(params["exceptionDetails"]))
