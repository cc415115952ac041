"""Looks at the site in a browser: `look.py SITE CHROMIUM`.

Each page is opened at 1280 and 390 px, light and dark (look.html). Fails if one is wider than that, if the browser
writes anything to its console, if a file is missing, or if the search does not find "held pipe".
"""

from __future__ import annotations

import functools
import http.server
import json
import queue
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

SITE, BROWSER = Path(sys.argv[1]).resolve(), sys.argv[2]
HERE = Path(__file__).parent
#: Seconds.
PATIENCE = 900
OPTIONS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --disable-dev-shm-usage --enable-logging=stderr
    --window-size=1400,900""".split()

ended: queue.Queue = queue.Queue()
missing: set[str] = set()


class Server(http.server.SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/look.html":
            self.answer("text/html; charset=utf-8", (HERE / "look.html").read_bytes())
        elif self.path == "/pages.json":
            files = [file.relative_to(SITE).as_posix() for file in sorted(SITE.rglob("*.html"))]
            others = ("rust/", "404.html", "toc.html")
            pages = [f"/{file}" for file in files if not file.startswith(others)]
            self.answer("application/json", json.dumps(pages).encode())
        else:
            super().do_GET()

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer("text/plain", b"")
        ended.put(json.loads(text))

    def answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        if self.path != "/favicon.ico":
            missing.add(f"{code} {self.path}")
        super().send_error(code, message, explain)

    def log_message(self, *_: object) -> None:
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Server, directory=SITE))
threading.Thread(target=server.serve_forever, daemon=True).start()
with tempfile.TemporaryDirectory() as profile, tempfile.TemporaryFile("w+") as log:
    address = f"http://127.0.0.1:{server.server_port}/look.html"
    command = [BROWSER, *OPTIONS, f"--user-data-dir={profile}", "--remote-debugging-port=0", address]
    browser = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        result = ended.get(timeout=PATIENCE)
    except queue.Empty:
        result = {"looks": 0, "found": 0, "wrong": [f"no answer of the browser after {PATIENCE} s"]}
    browser.terminate()
    browser.wait()
    log.seek(0)
    said = [line.strip() for line in log if "CONSOLE" in line]
wrong = [*result["wrong"], *sorted(missing), *said]
if wrong:
    sys.exit("\n".join(["wrong in the browser:", *wrong]))
print(f"{result['looks']} looks at pages, {result['found']} places found for: held pipe; nothing on the console")
