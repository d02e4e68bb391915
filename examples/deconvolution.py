r"""
Deconvolution of a stack that is larger than memory
===================================================

A microscope moves its focus through a specimen and records a stack of planes. The light of each
molecule falls into many voxels, so the stack is a 3-D convolution of the specimen with a point
spread function. The iteration of Richardson [1]_ and Lucy [2]_, which :doc:`deblurring` explains,
undoes it with the convolution and its exact transpose.

The stack of a whole brain takes terabytes. :func:`cupyconv.dask.conv3d` convolves an array chunk by
chunk, where each chunk reads what it needs of its neighbours. Its transpose is
:func:`cupyconv.dask.conv_transpose3d`, up to the borders of the array and across those of chunks.
Both take an FFT here. The stack of this page is small, but the iteration is that of a large one: it
reads the stack from files, slab by slab, and writes each estimate to files.

*Data:* none of the packages that the examples need has a stack of fluorescence, so the specimen is
synthetic. The point spread function follows from optics.
"""

import atexit
import shutil
import tempfile

import dask
import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
import scipy.ndimage
import scipy.special
from dask.callbacks import Callback

import cupyconv.dask
from gallery import BLUE, ORANGE, plots, show, to_host, xp

# %%
# A point spread function
# -----------------------
#
# A two-photon microscope scans a focus of infrared light, and molecules shine with the square of
# its intensity [3]_. The focus is a sum of waves over the angles of the objective. They arrive in
# step in water, but not deep in tissue [4]_, which moves the focus and draws it out to one side.

VOXEL = (0.45, 0.15, 0.15)  # µm, along z, y and x
RADII = (10, 8, 8)  # voxels
WAVELENGTH, APERTURE, DEPTH = 0.92, 1.0, 100.0  # µm, numerical, µm
WATER, TISSUE = 1.33, 1.36  # refractive indices


def point_spread():
    offsets = np.mgrid[tuple(slice(-radius, radius + 1) for radius in RADII)]
    z, y, x = offsets * np.reshape(VOXEL, (3, 1, 1, 1))
    wavenumber, field = 2 * np.pi / WAVELENGTH, 0
    for sine in APERTURE * (np.arange(200) + 0.5) / 200:  # of an angle, times the refractive index
        in_tissue, in_water = (np.sqrt(index**2 - sine**2) for index in (TISSUE, WATER))
        path = DEPTH * in_tissue - (DEPTH * WATER / TISSUE + z) * in_water
        ring = scipy.special.j0(wavenumber * sine * np.hypot(y, x))
        field += sine * ring * np.exp(1j * wavenumber * path)
    return abs(field) ** 4 / (abs(field) ** 4).sum()


# The library does not flip kernels, so the image of a point is given in reverse.
psf = xp.asarray(point_spread()[None, None, ::-1, ::-1, ::-1], dtype=xp.float32)

# %%
# A stack in files
# ----------------
#
# Dendrites wander through the specimen, which is larger than the stack by the radius of the kernel.
# The microscope counts photons. A chunk is a slab of whole planes, in a file of its own; a larger
# stack has them in a Zarr store (``da.from_zarr``, ``da.to_zarr``). ``kept`` moves a slab to the
# GPU, if there is one, when it is read. From there on it is a CuPy array, and a slab of each result
# is one, too: no other line of the page knows where it runs.

SHAPE, PLANES = (80, 64, 96), 16  # of the stack, and of a slab
FOLDER = tempfile.mkdtemp()
atexit.register(shutil.rmtree, FOLDER)
rng = np.random.default_rng(0)


def dendrites(shape, count=40, steps=3000):
    lines = np.ones(shape, dtype=bool)
    for _ in range(count):
        course = 20 * rng.standard_normal(3) + rng.standard_normal((steps, 3)).cumsum(axis=0)
        course /= np.linalg.norm(course, axis=1, keepdims=True)
        path = rng.uniform(0, shape) + (0.05 * course / VOXEL).cumsum(axis=0)
        path = path[((path >= 0) & (path < shape)).all(axis=1)].astype(int)
        lines[tuple(path.T)] = False
    return scipy.ndimage.distance_transform_edt(lines, sampling=VOXEL) < 0.4  # µm


def kept(array, name):
    """The same array, computed into files and read from them."""
    da.to_npy_stack(f"{FOLDER}/{name}", array.map_blocks(to_host), axis=1)
    return da.from_npy_stack(f"{FOLDER}/{name}", mmap_mode=None).map_blocks(xp.asarray)


specimen = 2 + 100 * dendrites(np.add(SHAPE, 2 * np.array(RADII))).astype(np.float32)  # photons
inside = specimen[tuple(slice(radius, -radius) for radius in RADII)][None]
photons = rng.poisson(to_host(cupyconv.conv3d(xp.asarray(specimen[None]), psf, method="fft")))
truth, stack = (
    kept(da.from_array(values.astype(np.float32), (1, PLANES, *SHAPE[1:])), name)
    for name, values in (("truth", inside), ("stack", photons))
)

# %%
# The transpose
# -------------
#
# What lies outside of the stack is unknown. A mirror, ``padding_mode="symmetric"``, is a better
# guess than nothing. With the same arguments the transpose takes the light that falls outside back
# to the voxel that the mirror shows there.

OPTIONS = dict(padding="same", method="fft")


def see(specimen, mode="symmetric"):
    kernel = psf.astype(specimen.dtype)
    return cupyconv.dask.conv3d(specimen, kernel, padding_mode=mode, **OPTIONS)


def spread_back(stack, mode="symmetric"):
    kernel = psf.astype(stack.dtype)
    return cupyconv.dask.conv_transpose3d(stack, kernel, padding_mode=mode, **OPTIONS)


normal = da.random.default_rng(0).normal
x, y = (normal(size=stack.shape, chunks=stack.chunks).map_blocks(xp.asarray) for _ in "xy")
products = dask.compute((see(x) * y).sum(), (x * spread_back(y)).sum())
print("<Ax, y> = {:.9f}, <x, Aᵀy> = {:.9f}".format(*map(float, products)))

whole = cupyconv.conv3d(stack.compute(), psf, padding_mode="symmetric", **OPTIONS)
gap = float(xp.linalg.norm(see(stack).compute() - whole) / xp.linalg.norm(whole))
print(f"in slabs and undivided, relative norm of the difference: {gap:.0e}")

# %%
# The iteration
# -------------
#
# An estimate takes two passes through the slabs, and the result of each goes to files. A slab reads
# planes of its neighbours, as many as the kernel has on either side of its middle. So what a worker
# holds follows from the size of a slab, not from the height of the stack; what an FFT takes beside
# it stands in :doc:`../large_kernels`. Dask would hold more of cubes, with 26 neighbours each.


def richardson_lucy(stack, iterations, mode="symmetric"):
    """Yield the estimates of the specimen. Each is kept until the next but one."""
    ones = stack.map_blocks(xp.ones_like)
    received = kept(spread_back(ones, mode), "received")
    estimate = ones * float(stack.mean())
    for i in range(iterations):
        ratio = kept(stack / see(estimate, mode), "ratio")
        estimate = kept(estimate / received * spread_back(ratio, mode), f"estimate {i % 2}")
        yield estimate


class Held(Callback):
    """The most bytes of arrays that Dask holds between two tasks."""

    most = 0

    def _posttask(self, key, result, graph, state, worker):
        held = sum(getattr(value, "nbytes", 0) for value in state["cache"].values())
        self.most = max(self.most, held)


for planes, size in ((PLANES, SHAPE[1:]), (64, (2048, 2048))):
    slab, read = (4e-6 * count * np.prod(size) for count in (planes, planes + 2 * RADII[0]))
    print(f"{planes} planes of {size}: {slab:.2f} MB, with those of the neighbours {read:.2f} MB")

held = {}
for copies in (1, 2, 4):
    tall = kept(da.concatenate([stack] * copies, axis=1), "tall")
    with dask.config.set(scheduler="synchronous"), Held() as worker:
        next(richardson_lucy(tall, 1))
    held[tall.nbytes] = worker.most
    print(f"of a stack of {tall.nbytes / 1e6:.2f} MB Dask holds {worker.most / 1e6:.2f} MB")

# %%
# What comes out
# --------------

ITERATIONS = 16


def side(volume):
    """The brightest voxel along y, with the depth to the right, to scale."""
    return to_host(volume.max(axis=(0, 2)).compute()).T.repeat(3, axis=1)


panels = {"the specimen": side(truth), "the stack": side(stack)}
errors, last = {}, {}
for mode in ("symmetric", None):
    errors[mode] = []
    for estimate in richardson_lucy(stack, ITERATIONS, mode):
        squares = to_host(((estimate - truth) ** 2).mean(axis=(0, 2, 3)).compute())
        errors[mode].append(squares.mean() ** 0.5)
    last[mode] = squares**0.5
    panels[f"deconvolved, padding_mode={mode!r}"] = side(estimate)

show(panels, columns=2, vmin=0, vmax=110)
plt.show()

left, right = plots("error, in photons", "error of each plane, at the end", xlabel="iteration")
for mode, colour in (("symmetric", BLUE), (None, ORANGE)):
    left.plot(range(1, ITERATIONS + 1), errors[mode], color=colour, label=f"{mode!r}")
    right.plot(last[mode], color=colour)
left.legend(fontsize=8, frameon=False)
right.set_xlabel("plane", fontsize=9)
plt.show()

# %%
# Where nothing is said to be outside, the last plane has to shine for all that lies beyond it. The
# light of the first planes leaves the stack, so neither mode helps there.
#
# .. [1] W. H. Richardson, `Bayesian-based iterative method of image restoration
#    <https://doi.org/10.1364/JOSA.62.000055>`__, Journal of the Optical Society of America 62,
#    1972.
# .. [2] L. B. Lucy, `An iterative technique for the rectification of observed distributions
#    <https://doi.org/10.1086/111605>`__, The Astronomical Journal 79, 1974.
# .. [3] W. Denk, J. H. Strickler and W. W. Webb, `Two-photon laser scanning fluorescence microscopy
#    <https://doi.org/10.1126/science.2321027>`__, Science 248, 1990.
# .. [4] S. F. Gibson and F. Lanni, `Experimental test of an analytical model of aberration in an
#    oil-immersion objective lens used in three-dimensional light microscopy
#    <https://doi.org/10.1364/JOSAA.9.000154>`__, Journal of the Optical Society of America A 9,
#    1992.
