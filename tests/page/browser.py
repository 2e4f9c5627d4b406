"""A headless Chromium, driven through its debugging pipe: looks at a page as a person would. Standard library only."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

SWITCHES = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe"),
    *(
        "--disable-extensions",
        "--disable-background-networking",
        "--hide-scrollbars",
        "--disable-dev-shm-usage",
    ),
)


def program():
    """Where Chromium is; None where it is not."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """One tab; a context manager that ends the browser and removes its profile."""

    def __init__(self, chromium):
        self._profile = tempfile.mkdtemp(prefix="ddpdoctor-browser-")
        to_child, self._write = os.pipe()
        self._read, from_child = os.pipe()
        # The pipe has to be file descriptors 3 and 4 of the browser.
        shell = f'exec "$@" 3<&{to_child} 4>&{from_child}'
        command = [
            "bash",
            "-c",
            shell,
            "bash",
            chromium,
            *SWITCHES,
            f"--user-data-dir={self._profile}",
            "about:blank",
        ]
        self._process = subprocess.Popen(
            command, pass_fds=(to_child, from_child), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_child)
        os.close(from_child)
        self._received, self._count = b"", 0
        self.problems = []
        """What the console said, and requests that the page made."""
        targets = self.call("Target.getTargets", session=False)["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        attached = self.call("Target.attachToTarget", session=False, targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with suppress(OSError, EOFError):
            self.call("Browser.close", session=False)
        self._process.terminate()
        self._process.wait(30)
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method, session=True, **params):
        """The result of a command of the DevTools protocol."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._note(answer)

    def _next(self):
        while b"\0" not in self._received:
            part = os.read(self._read, 1 << 20)
            if not part:
                raise EOFError
            self._received += part
        message, _, self._received = self._received.partition(b"\0")
        return json.loads(message)

    def _note(self, event):
        name, params = event.get("method"), event.get("params", {})
        if name in (
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
            "Log.entryAdded",
            "Page.javascriptDialogOpening",
        ):
            self.problems.append((name, json.dumps(params)[:500]))
        if name == "Network.requestWillBeSent" and not params["request"]["url"].startswith(
            ("file:", "data:", "about:")
        ):
            self.problems.append((name, params["request"]["url"]))

    def open(self, page: Path, width=1280, *, dark=False, media="screen"):
        """Show a file in a window of this width."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url=page.resolve().as_uri())
        while self.value("document.readyState") != "complete" or self.value("location.protocol") != "file:":
            pass

    def value(self, expression):
        """What an expression is on the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def key(self, name, text=""):
        """Press a key and let it go."""
        codes = {"Tab": 9, "Enter": 13}
        for kind in ("keyDown", "keyUp"):
            extra = {"text": text} if text and kind == "keyDown" else {}
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=name,
                code=name,
                windowsVirtualKeyCode=codes[name],
                **extra,
            )

    def screenshot(self, file: Path):
        """The whole page as PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        file.write_bytes(base64.b64decode(shot["data"]))

    def sheets(self) -> int:
        """How many pages of A4 it takes to print."""
        paper = {"paperWidth": 8.27, "paperHeight": 11.69, "preferCSSPageSize": False}
        self.call("Emulation.setEmulatedMedia", media="print")
        return base64.b64decode(self.call("Page.printToPDF", **paper)["data"]).count(b"/Type /Page\n")
