"""The file that opens the page in a browser.

A browser is started with an address among its arguments, which every user of the machine can read. So it gets the path
of a file that only its owner can read, and that leads to the page. The file is removed once it was used.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import webbrowser
from contextlib import suppress
from html import escape
from pathlib import Path

from cosmic.files import write_text
from cosmic.live.keys import LAUNCHED, Keys

SECONDS = 120.0
"""How long a browser may take to start."""
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={address}">
<title>COSMIC</title>
</head>
<body><p><a href="{address}">Open the live page</a></p></body>
</html>
"""


class Launch:
    """A private file with an address that lets one browser in."""

    def __init__(self, keys: Keys, seconds: float = SECONDS) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="cosmic-ui-"))  # of mode 0700
        self.file = self._folder / "open.html"
        address = keys.address(LAUNCHED, seconds, self.remove)
        write_text(self.file, PAGE.format(address=escape(address)))
        with suppress(OSError):
            self.file.chmod(0o600)
        self._timer = threading.Timer(seconds, self.remove)
        self._timer.daemon = True
        self._timer.start()

    def open(self) -> None:
        """Open the file in a browser; some run in this terminal until they are left."""
        threading.Thread(target=webbrowser.open, args=(self.file.as_uri(),), daemon=True).start()

    def remove(self) -> None:
        """Remove the file."""
        self._timer.cancel()
        shutil.rmtree(self._folder, ignore_errors=True)
