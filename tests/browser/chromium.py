"""A headless Chromium, driven through the DevTools protocol over a pair of pipes: no port, no driver, no network."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import time
from base64 import b64decode
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "headless_shell")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--remote-debugging-pipe",
    "--window-size=1100,1000",
)
ANSWER_S = 60.0
"""After which a browser that does not answer is a failure."""


def find() -> str | None:
    """The path of a Chromium on this machine."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Chromium:
    """One page of a browser of its own, with an empty profile.

    Attributes
    ----------
    complaints : list of str
        Exceptions, console errors and warnings, and requests to the network since the start.
    """

    def __init__(self, profile: Path) -> None:
        program = find()
        assert program is not None
        self.complaints: list[str] = []
        self._number, self._buffer = 0, b""
        to_read, self._write = os.pipe()
        self._read, from_write = os.pipe()
        for end in (to_read, from_write):
            os.set_inheritable(end, True)  # where it has the right number already, nothing else would
        nothing = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
        wired = [(os.POSIX_SPAWN_DUP2, to_read, 3), (os.POSIX_SPAWN_DUP2, from_write, 4)]  # as Chromium expects them
        command = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = os.posix_spawn(
            program, command, {**os.environ, "HOME": str(profile)}, file_actions=[*nothing, *wired]
        )
        os.close(to_read)
        os.close(from_write)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session: str | None = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    _session: str | None = None

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.kill(self._process, signal.SIGTERM)
        end = time.monotonic() + 10
        while os.waitpid(self._process, os.WNOHANG) == (0, 0):
            if time.monotonic() > end:
                os.kill(self._process, signal.SIGKILL)
            time.sleep(0.01)
        os.close(self._write)
        os.close(self._read)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None and not method.startswith("Target."):
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def open(self, path: Path) -> None:
        """Load a file and wait until it has run."""
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, script: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + ANSWER_S
        while not self.run(script):
            assert time.monotonic() < end, f"never true: {script}"
            time.sleep(0.02)

    def place(self, selector: str, where: tuple[float, float] = (0.5, 0.5)) -> tuple[float, float]:
        """A point of an element, scrolled into view and drawn there: shares of its width and height."""
        # The pointer hits what the last frame shows, and the one that is under way may still show what was before.
        box = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'});"
            " return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => {"
            " const b = e.getBoundingClientRect(); done([b.left, b.top, b.width, b.height]); }))); })()"
        )
        return box[0] + where[0] * box[2], box[1] + where[1] * box[3]

    def move(self, x: float, y: float) -> None:
        """Move the pointer."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        """Click on the middle of an element, as a hand would."""
        x, y = self.place(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def wheel(self, x: float, y: float, turn: float) -> None:
        """Turn the wheel; below zero away from the hand."""
        self.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=turn)

    def look(self, width: int = 1000, scheme: str = "light", media: str = "screen") -> None:
        """Show pages as a window or a phone of some width does, with a color scheme, on the screen or in print."""
        self.call("Emulation.setEmulatedMedia", media=media,
                  features=[{"name": "prefers-color-scheme", "value": scheme}])
        phone = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=phone)

    def press(self, key: str, code: int) -> None:
        """Press a key: its name, and its code of the DOM ("ArrowRight", 39)."""
        text = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code,
                      **(text if kind == "keyDown" else {}))

    def named(self) -> list[tuple[str, str]]:
        """Role and name of everything that assistive technology is told of."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes
                if not node["ignored"] and "role" in node]

    def picture(self, path: Path) -> None:
        """Write the whole page as PNG."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(b64decode(shot["data"]))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], ANSWER_S)
            assert ready, f"no answer from Chromium within {ANSWER_S:.0f} s"
            more = os.read(self._read, 1 << 20)
            assert more, "Chromium ended"
            self._buffer += more
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = dict(json.loads(text))
        self._listen(message.get("method", ""), message.get("params", {}))
        return message

    def _listen(self, method: str, said: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(said["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(said["args"]))
        elif method == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.complaints.append(said["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            url = said["request"]["url"]
            if not url.startswith(("file:", "data:", "about:")):
                self.complaints.append(f"asked the network for {url}")
