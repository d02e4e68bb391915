"""Draw the README's picture: ``python docs/make_strip.py``, from ``examples/deblurring.py``.

Three square panels stand side by side: what the telescope sees, what the iteration makes of it, and
the sky as it is. Pixels are enlarged, and nothing is interpolated.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

ROOT = Path(__file__).parents[1]
FILE = Path(__file__).parent / "static" / "deblurring.png"
ENLARGED, MARGIN, CAPTION, INDENT = 3, 6, 36, 4  # pixels
COLOURS = 128  # of the palette, which keeps the file small


def example() -> SimpleNamespace:
    """Run the gallery's script, and return its global names."""
    matplotlib.use("template")  # draws nothing
    sys.path.insert(0, str(ROOT / "examples"))
    return SimpleNamespace(**runpy.run_path(str(ROOT / "examples" / "deblurring.py")))


def strip(page: SimpleNamespace) -> Image.Image:
    """Return the panels, with a caption over each."""
    panels = {
        f"telescope, {page.psnr(page.picture):.1f} dB": page.picture,
        f"deblurred, {page.quality[page.best]:.1f} dB": page.estimates[page.best],
        "the sky": page.sky,
    }
    size = ENLARGED * page.FRAME
    sheet = Image.new("RGB", (len(panels) * (size + MARGIN) - MARGIN, CAPTION + size), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=24)
    for place, (caption, image) in enumerate(panels.items()):
        left = place * (size + MARGIN)
        values = page.to_host(page.stretched(image)).transpose(1, 2, 0)
        pixels = Image.fromarray(np.rint(255 * values).astype(np.uint8))
        sheet.paste(pixels.resize((size, size), Image.Resampling.NEAREST), (left, CAPTION))
        draw.text((left + INDENT, CAPTION / 2 - 1), caption, fill="black", font=font, anchor="lm")
    return sheet


if __name__ == "__main__":
    palette = strip(example()).quantize(COLOURS, dither=Image.Dither.NONE)
    palette.save(FILE, optimize=True)
    print(FILE.relative_to(ROOT), FILE.stat().st_size, "bytes")
