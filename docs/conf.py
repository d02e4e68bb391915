"""How Sphinx builds the documentation: ``make docs``, from the root of the repository."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import matplotlib

import cupyconv

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import make_pictures  # noqa: E402, the folder must be on the path first

project = "cupyconv"
author = "The cupyconv developers"
copyright = author
release = cupyconv.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["build", "templates"]
templates_path = ["templates"]
default_role = "autolink"  # `name` is a link where it is a public name, else emphasis
highlight_language = "none"

autodoc_typehints = "none"  # the docstrings say more than the annotations
numpydoc_show_class_members = False

# Each build writes the functions' pages and runs all scripts anew: the library may have changed, or
# a function or a script may be gone.
for folder in ("reference", "gallery"):
    shutil.rmtree(HERE / folder, ignore_errors=True)
matplotlib.rcParams["savefig.dpi"] = 160  # of the gallery's figures, which the page scales down
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"gallery\.py$",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "remove_config_comments": True,
    "reset_modules": (),  # no script changes matplotlib's settings
    "doc_module": ("cupyconv",),
    "backreferences_dir": "gallery/functions",  # which scripts a function's page shows
    "capture_repr": (),
    "notebook_extensions": set(),
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 60,
}

html_theme = "furo"
html_title = f"cupyconv {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False


def setup(app) -> None:
    app.connect("builder-inited", lambda app: make_pictures.make())
