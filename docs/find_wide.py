"""Find what is wider than its column on the built pages: ``python docs/find_wide.py [folder]``.

A headless Chromium shows each page at the width of a desktop and at that of a phone. On a desktop
nothing may need a scroll bar of its own; on a phone code, tables and drawings may, but not a page.
The script needs nothing but Chromium. It prints what it finds, and then exits with status 1.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread

BUILT = Path(__file__).parent / "build" / "html"
DESKTOP, PHONE = 1400, 400  # pixels, of a desktop with its scroll bar
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

# Loads all pages, one after the other, into a frame of each width, and sends what sticks out.
# Furo's headings reach into the margin on purpose. Elements without a width are hidden.
PAGE = """<!doctype html><iframe style="border: 0; height: 900px"></iframe><script>
const frame = document.querySelector("iframe"), found = [];
function scrolls(e) {
  return /auto|scroll|hidden/.test(frame.contentWindow.getComputedStyle(e).overflowX);
}
function words(e) {
  return e.tagName.toLowerCase() + ": " + (e.innerText || e.alt || "").trim().slice(0, 60);
}
function wide(column, desktop) {
  const root = frame.contentDocument.documentElement;
  const report = root.scrollWidth > root.clientWidth ? ["the whole page"] : [];
  const limits = column.getBoundingClientRect();
  for (const e of column.querySelectorAll("*")) {
    const box = e.getBoundingClientRect();
    if (!box.width || e.matches("h1, h2, h3, h4, dt.sig")) continue;
    if (scrolls(e) && desktop && e.scrollWidth > e.clientWidth + 1)
      report.push("scrolls, " + words(e));
    let scroller = e.parentElement;
    while (scroller !== column && !scrolls(scroller)) scroller = scroller.parentElement;
    if (scroller === column && (box.right > limits.right + 1 || box.left < limits.left - 1))
      report.push("sticks out, " + words(e));
  }
  return report;
}
async function main() {
  for (const width of WIDTHS)
    for (const page of PAGES) {
      frame.style.width = width + "px";
      frame.src = page;
      await new Promise(done => frame.onload = done);
      const column = frame.contentDocument.querySelector("article");
      if (column) wide(column, width >= 1000).forEach(what => found.push([page, width, what]));
    }
  await fetch("/found", {method: "POST", body: JSON.stringify(found)});
}
main();
</script>"""


class Handler(SimpleHTTPRequestHandler):
    """Serves the folder and the page that measures, and takes what that page found."""

    def __init__(self, *args: object, page: bytes, answers: Queue[list], **options: object) -> None:
        self.page, self.answers = page, answers
        super().__init__(*args, **options)

    def do_GET(self) -> None:
        if self.path != "/measure":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(self.page)

    def do_POST(self) -> None:
        self.answers.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing: the output is the report."""


def find(folder: Path, widths: tuple[int, ...] = (DESKTOP, PHONE)) -> list[tuple[str, int, str]]:
    """Return the page, the width and the element for all that is wider than its column."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise FileNotFoundError(f"needs one of {', '.join(BROWSERS)}")
    pages = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.html"))
    page = PAGE.replace("WIDTHS", json.dumps(widths)).replace("PAGES", json.dumps(pages))
    answers: Queue[list] = Queue()
    handler = partial(Handler, directory=folder, page=page.encode(), answers=answers)
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), handler) as server,
        tempfile.TemporaryDirectory() as home,
    ):
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/measure"
        options = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={home}")
        # The port keeps the browser open until the page has sent its report.
        process = subprocess.Popen(
            (browser, *options, "--remote-debugging-port=0", address),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            return [tuple(row) for row in answers.get(timeout=600)]
        finally:
            process.terminate()
            process.wait()
            server.shutdown()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=BUILT)
    rows = find(parser.parse_args().folder.resolve())
    for row in rows:
        print(*row, sep="  ")
    sys.exit(bool(rows))
