"""Looks at the pages that the tool writes: `reports.py CHROMIUM AXE FOLDER PAGE...`.

Each page is opened at 1280 and 390 px, light and dark, with all that can be opened on it open. Fails if axe (the file
of axe-core) finds anything, if a page is wider than that, if it has no heading, or if it writes to the console. The
folder gets a picture of each.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

BROWSER, AXE, FOLDER = sys.argv[1], Path(sys.argv[2]).read_text(), Path(sys.argv[3])
PAGES = [Path(page).resolve() for page in sys.argv[4:]]
OPTIONS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars
    --remote-debugging-pipe""".split()
LOOK = """(async () => {
    for (const it of document.querySelectorAll("details")) it.open = true;
    const root = document.documentElement, main = document.querySelector("main");
    const scrolls = (it) => it && it !== main &&
        (/auto|scroll|hidden/.test(getComputedStyle(it).overflowX) || scrolls(it.parentElement));
    const isWide = (it) => it.getBoundingClientRect().right > innerWidth + 1 && !scrolls(it);
    const wide = [...main.querySelectorAll("*")].filter((it) => !it.closest(".tip") && isWide(it));
    const wrong = wide.slice(0, 3).map((it) => `too wide: ${it.tagName} ${it.textContent.slice(0, 60)}`);
    if (root.scrollWidth > root.clientWidth) wrong.push(`${root.scrollWidth} px wide`);
    if (!document.querySelector("h1")) wrong.push("no heading");
    const { violations } = await axe.run(document, { resultTypes: ["violations"] });
    for (const { id, help, nodes } of violations) {
        wrong.push(`axe: ${id}: ${help} (${nodes.length}): ${nodes[0].html.slice(0, 200)}`);
    }
    return { wrong, colour: getComputedStyle(document.body).backgroundColor };
})()"""


class Browser:
    """Chromium, which takes commands and tells events through two pipes."""

    def __init__(self, profile: str) -> None:
        commands, self.commands = os.pipe()
        self.events, events = os.pipe()
        # Chromium reads descriptor 3 and writes 4.
        words = ["sh", "-c", f'exec "$@" 3<&{commands} 4>&{events}', "sh"]
        words += [BROWSER, *OPTIONS, f"--user-data-dir={profile}", "about:blank"]
        self.process = subprocess.Popen(words, pass_fds=(commands, events), stderr=subprocess.DEVNULL)
        os.close(commands)
        os.close(events)
        self.rest, self.number, self.said = b"", 0, []
        pages = self.call("Target.getTargets")["targetInfos"]
        target = next(it["targetId"] for it in pages if it["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    session = None

    def message(self) -> dict:
        while b"\0" not in self.rest:
            piece = os.read(self.events, 1 << 16)
            if not piece:
                sys.exit(f"{BROWSER} has ended")
            self.rest += piece
        text, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(text)
        if message.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.said.append(json.dumps(message["params"])[:300])
        return message

    def call(self, method: str, **params: object) -> dict:
        self.number += 1
        command = {"id": self.number, "method": method, "params": params}
        if self.session:
            command["sessionId"] = self.session
        os.write(self.commands, json.dumps(command).encode() + b"\0")
        while (message := self.message()).get("id") != self.number:
            pass
        if "error" in message:
            sys.exit(f"{method}: {message['error']}")
        return message["result"]

    def run(self, script: str) -> object:
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            sys.exit(f"{found['exceptionDetails']}"[:1000])
        return found["result"].get("value")

    def open(self, page: Path, width: int, theme: str) -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        self.call("Page.navigate", url=page.as_uri())
        while self.message().get("method") != "Page.loadEventFired":
            pass

    def picture(self, file: Path) -> None:
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 12_000), "scale": 1}
        taken = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        file.write_bytes(base64.b64decode(taken["data"]))


wrong, looks = [], 0
with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
    browser = Browser(profile)
    for page in PAGES:
        for width in (1280, 390):
            for theme in ("light", "dark"):
                browser.open(page, width, theme)
                browser.run(AXE + "; undefined")
                found = browser.run(LOOK)
                parts = [int(part) for part in found["colour"].strip("rgb()").split(",")]
                if (max(parts) < 128) != (theme == "dark"):
                    found["wrong"].append(f"is {found['colour']}")
                browser.picture(FOLDER / f"{page.stem}-{width}-{theme}.png")
                wrong += [f"{page.name} at {width} px, {theme}: {it}" for it in found["wrong"] + browser.said]
                browser.said.clear()
                looks += 1
    browser.process.terminate()
    browser.process.wait()
if wrong:
    sys.exit("\n".join(["wrong in the browser:", *wrong]))
print(f"{looks} looks at pages; axe finds nothing, and nothing is on the console")
