"""The gallery: each script of ``examples/`` runs, and what its page says is so.

A script runs once on each kind of arrays, at the size that its page shows. The figures are drawn by
``test_documentation.py``, which builds the pages.
"""

from __future__ import annotations

import functools
import importlib
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import dask
import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.ndimage
import scipy.signal
import scipy.special
from PIL import Image

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem != "gallery")

Run = Callable[[str], SimpleNamespace]


@pytest.fixture(scope="module", params=["numpy", pytest.param("cupy", marks=pytest.mark.gpu)])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Run a script, or remember that it has run, and give its global names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        gallery = importlib.import_module("gallery")
        patch.setattr(gallery, "xp", importlib.import_module(request.param))
        plt.switch_backend("template")  # draws nothing

        @functools.cache
        def names(script: str) -> SimpleNamespace:
            namespace = runpy.run_path(str(EXAMPLES / f"{script}.py"))
            plt.close("all")
            return SimpleNamespace(**namespace)

        yield names


@pytest.mark.parametrize("script", SCRIPTS)
def test_runs_on_the_arrays_that_it_is_given(run: Run, script: str) -> None:
    page = run(script)
    results = [value for value in vars(page).values() if isinstance(value, page.xp.ndarray)]
    assert results


# Blind deconvolution of a burst --------------------------------------------------------------


def test_steps_of_sky_and_kernels_go_down_both_gradients(run: Run) -> None:
    """The gradients are those of finite differences, far from the truth as well."""
    page = run("blind_deconvolution")
    rng = np.random.default_rng(0)
    for sky, kernels in ((page.sky, page.kernels), page.runs["burst, blind"][3]):
        change_sky, change_kernels = (
            1e-4 * a * page.xp.asarray(rng.choice([-1, 1], a.shape)) for a in (sky, kernels)
        )
        for gradient, sky_step, kernel_step in (
            (page.sky_gradient, change_sky, 0),
            (page.kernel_gradient, 0, change_kernels),
        ):
            ahead = page.loss(sky + sky_step, kernels + kernel_step, page.frames)
            behind = page.loss(sky - sky_step, kernels - kernel_step, page.frames)
            slope = float((gradient(sky, kernels, page.frames) * (sky_step + kernel_step)).sum())
            # Rounding of a loss of 4e7, and the third order of the step.
            assert (ahead - behind) / 2 == pytest.approx(slope, rel=1e-4, abs=1e-7)


def test_the_loss_falls_in_each_blind_iteration(run: Run) -> None:
    page = run("blind_deconvolution")
    for name in page.BLIND:
        assert np.diff(page.losses[name]).max() < 0
        for sky, kernels in page.runs[name]:
            assert float(sky.min()) > 0 and float(kernels.min()) > 0
            assert page.to_host(kernels.sum(axis=(1, 2, 3))) == pytest.approx(1)


def test_a_burst_says_more_than_one_frame(run: Run) -> None:
    page = run("blind_deconvolution")
    burst, single, known = (np.array(values) for values in page.quality.values())
    frame = page.psnr(page.frames[:1])
    assert 0.6 < (burst.max() - frame) / (known.max() - frame) < 0.75
    assert np.diff(burst).min() > 0
    assert burst.max() > single.max() + 3 and single.max() > single[-1]
    assert page.losses["one frame, blind"][-1] < 0 < page.losses["burst, blind"][-1]
    errors = [page.kernel_error(kernels) for _, kernels in page.runs["burst, blind"]]
    assert np.diff(errors).max() < 0


# Enlargement without checkerboards -----------------------------------------------------------


def white(page: SimpleNamespace, size: int) -> float:
    return page.checkerboard(page.double(page.white, page.flat(size)))


def test_a_flat_kernel_leaves_a_checkerboard_where_the_stride_does_not_divide_it(run: Run) -> None:
    page = run("checkerboard")
    assert white(page, 4) == 0
    for size in (3, 5):
        copies = [-(-size // 2), size // 2]  # of an output with even and with odd index
        counts = np.outer(copies, copies)
        assert white(page, size) == pytest.approx(counts.std() / counts.mean(), rel=1e-5)
    assert page.checkerboard(page.doubled[4]) < 0.01
    assert min(page.checkerboard(page.doubled[size]) for size in (3, 5)) > 0.25


def test_learned_kernels_are_the_best_of_their_size(run: Run) -> None:
    """The error on what they were learned from is a parabola around them, in any direction."""
    page = run("checkerboard")
    training = page.photograph[:, 256:]
    rng = np.random.default_rng(0)

    def error(kernel: object) -> float:
        doubled = page.double(page.halve(training), kernel)
        return float(((doubled - training)[:, 8:-8, 8:-8].astype(float) ** 2).mean())

    for size in page.SIZES:
        kernel = page.kernels[f"learned, {size} × {size}"]
        for _ in range(5):
            step = page.xp.asarray(0.05 * rng.standard_normal((size, size)))
            ahead, here, behind = error(kernel + step), error(kernel), error(kernel - step)
            assert abs(ahead - behind) < 0.01 * (ahead + behind - 2 * here)


def test_what_the_page_says_of_the_learned_kernels(run: Run) -> None:
    page = run("checkerboard")
    names = [f"learned, {size} × {size}" for size in page.SIZES]
    quality = [page.psnr(page.double(page.small, page.kernels[name]), page.face) for name in names]
    pattern = [page.checkerboard(page.double(page.white, page.kernels[name])) for name in names]
    assert np.argmax(quality) == 2
    assert np.argmax(pattern) == 2
    assert np.argmin(pattern) == 1
    assert max(pattern) < 0.005
    flat = [page.psnr(page.doubled[size], page.face) for size in page.SIZES]
    assert min(np.subtract(quality, flat)) > 3


@pytest.mark.parametrize("factor", [2, 3, 4, 5])
def test_bilinear_kernels_interpolate(run: Run, factor: int) -> None:
    page = run("checkerboard")
    image = np.random.default_rng(factor).random((7, 9))
    kernel = page.bilinear(factor)[None, None]
    out = page.cupyconv.conv_transpose2d(
        page.xp.asarray(image)[None], kernel, stride=factor, padding=factor // 2
    )
    exact = scipy.ndimage.zoom(image, factor, order=1, mode="nearest", grid_mode=True)
    inner = (slice(factor, -factor),) * 2
    np.testing.assert_allclose(page.to_host(out[0])[inner], exact[inner], rtol=1e-13)


def test_output_padding_hangs_on_one_tap(run: Run) -> None:
    page = run("checkerboard")
    exact = (page.places + 0.5) / 2
    assert page.gain[3].tolist() == [1] * 15 + [0.5]
    assert page.gain[4].tolist() == [0.75] + [1] * 14 + [0.75]
    assert page.to_host(page.repeated[0]).tolist() == [1] * 16
    assert page.line[4][1:-1].tolist() == exact[1:-1].tolist()
    assert (page.line[3] - exact)[:-1].tolist() == [0.25] * 15  # half a pixel of the output


# A filter of its own for each channel --------------------------------------------------------


def weighted_mean(values: np.ndarray, exists: np.ndarray, **options: object) -> np.ndarray:
    """By SciPy, of the values that exist."""
    blur = functools.partial(scipy.ndimage.gaussian_filter, mode="constant", **options)
    weight = blur(exists)
    return blur(values * exists) / np.where(weight, weight, 1)


def test_each_stain_has_its_own_gaussians(run: Run) -> None:
    page = run("filtering")
    stains = page.to_host(page.stains)
    for i, sigma in enumerate((3.0, 4.8, 1.5, 2.4)):
        stain = stains[i // 2]
        exact = weighted_mean(stain, np.ones_like(stain), sigma=sigma, radius=12)
        np.testing.assert_allclose(page.to_host(page.blurred[i]), exact, rtol=0, atol=1e-13)


def test_maxima_are_the_largest_of_their_neighbourhood(run: Run) -> None:
    page = run("filtering")
    nuclei = page.to_host(page.nuclei)
    largest = scipy.ndimage.maximum_filter(nuclei, 11, mode="constant", cval=-np.inf)
    exact = np.nonzero((nuclei == largest) & (nuclei > 0.06))
    np.testing.assert_array_equal((page.rows, page.columns), exact)
    assert page.rows.size > 50


def test_volumes_are_smoothed_in_millimetres_and_in_the_mask(run: Run) -> None:
    page = run("filtering")
    volumes, inside = page.to_host(page.volumes), page.to_host(page.inside)
    sigma = 6 / 2.354820045 / np.array([2, 2, 2.2])
    masked = page.to_host(page.masked)
    for volume, result in zip(volumes, masked, strict=True):
        exact = weighted_mean(volume.astype(float), inside.astype(float), sigma=sigma, radius=6)
        # 39 products and a quotient, with rounded weights, each off by a few units of 2**-24.
        np.testing.assert_allclose(result[inside], exact[inside], rtol=100 * 2**-24)
    assert not masked[:, ~inside].any()


def test_less_noise_goes_away_than_of_white_noise(run: Run) -> None:
    page = run("filtering")
    left = page.noise["smoothed in the mask"] / page.noise["unfiltered"]
    assert page.norm < left < 0.25


# Reverberation of a concert hall -------------------------------------------------------------


def test_the_hall_answers_directly_and_from_each_wall(run: Run) -> None:
    page = run("reverberation")
    source, size = np.array(page.SOURCE), np.array(page.HALL)
    response = page.impulse_response(page.EARS[0])
    images = [(source, 1.0)]
    for axis in range(3):
        for wall in (0, size[axis]):
            image = source.copy()
            image[axis] = 2 * wall - source[axis]
            images.append((image, page.REFLECTED))
    for image, strength in images:
        distance = np.linalg.norm(image - page.EARS[0])
        arrival = int(distance * page.RATE / page.SPEED)
        # The mean of a hundredth of a second around it is taken away.
        assert response[arrival] == pytest.approx(strength / distance, rel=0.05)
    direct = int(np.linalg.norm(source - page.EARS[0]) * page.RATE / page.SPEED)
    assert response.argmax() == direct
    assert abs(response[:direct]).max() < 0.02 * response[direct]


def test_the_hall_rings_as_scipy_says(run: Run) -> None:
    page = run("reverberation")
    dry = page.to_host(page.dry).astype(float)
    for ear, wet in zip(page.EARS, page.to_host(page.wet), strict=True):
        exact = scipy.signal.oaconvolve(dry[0], page.impulse_response(ear))[: dry.size]
        assert np.linalg.norm(wet - exact) < 1e-6 * np.linalg.norm(exact)


def test_noise_measures_the_hall(run: Run) -> None:
    page = run("reverberation")
    kernels = page.xp.asarray(np.random.default_rng(1).random(page.hall.shape), page.xp.float32)
    forward = functools.partial(page.ring, page.played)
    gap = adjoint_gap(forward, page.correlate, kernels, page.recorded)
    assert gap < 1e-5
    assert np.diff(page.deviations).max() < 0
    assert page.deviations[-1] < 0.03
    level = page.levels["true"]
    late = np.flatnonzero((level < -5) & (level > -25))
    true = 3 * (late[-1] - late[0]) / page.RATE
    assert page.reverberation == pytest.approx(true, rel=0.02)


# Richardson-Lucy deblurring ------------------------------------------------------------------


def adjoint_gap(forward: Callable, backward: Callable, x: object, y: object) -> float:
    """How far <Ax, y> is from <x, Aᵀy>, relative to the sum of the terms' magnitudes."""
    left, right = forward(x) * y, x * backward(y)
    return float(abs(left.sum() - right.sum()) / abs(left).sum())


@pytest.mark.parametrize("padding", [0, 3, 8])
def test_spreading_back_is_the_adjoint_of_seeing(run: Run, padding: int) -> None:
    page = run("deblurring")
    rng = np.random.default_rng(padding)
    size = page.FRAME + 2 * (page.RADIUS - padding)
    x = page.xp.asarray(rng.standard_normal((3, size, size)))
    y = page.xp.asarray(rng.standard_normal((3, page.FRAME, page.FRAME)))
    forward = functools.partial(page.see, padding=padding)
    backward = functools.partial(page.spread_back, padding=padding)
    assert adjoint_gap(forward, backward, x, y) < 1e-12


def test_each_iteration_keeps_the_photons_and_is_more_likely(run: Run) -> None:
    page = run("deblurring")
    received = page.spread_back(page.xp.ones_like(page.picture))
    for estimate in page.estimates:
        assert float((received * estimate).sum()) == pytest.approx(float(page.picture.sum()))
        assert float(estimate.min()) >= 0
    assert np.diff(page.likelihood).min() > 0


def test_deblurring_brings_decibels_until_it_fits_the_noise(run: Run) -> None:
    page = run("deblurring")
    assert page.quality[page.best] > page.psnr(page.picture) + 6
    assert page.quality[page.best] > page.psnr(page.bounded) + 1
    assert 0 < page.best < page.ITERATIONS - 1
    assert (np.diff(page.quality) > 0).tolist() == [
        i < page.best for i in range(page.ITERATIONS - 1)
    ]


def test_the_readme_shows_the_strip_that_the_script_draws(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the palette, and to the font of the captions."""
    docs = EXAMPLES.parent / "docs"
    monkeypatch.syspath_prepend(str(docs))
    make_strip = importlib.import_module("make_strip")
    drawn = make_strip.strip(run("deblurring"))
    with Image.open(make_strip.FILE) as file:
        committed = file.convert("RGB")
    assert committed.size == drawn.size
    panels = (slice(make_strip.CAPTION, None),)
    difference = np.subtract(*(np.asarray(image, float)[panels] for image in (committed, drawn)))
    assert abs(difference).mean() < 3
    assert make_strip.FILE.stat().st_size < 60_000


# Deconvolution of a stack that is larger than memory -----------------------------------------


def normal(page: SimpleNamespace, chunks: tuple, seed: int) -> da.Array:
    random = da.random.default_rng(seed)
    return random.normal(size=page.stack.shape, chunks=chunks).map_blocks(page.xp.asarray)


SLABS, CUBES = (1, 16, 64, 96), (1, 16, 16, 16)


def test_a_focus_in_water_is_an_airy_disc(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its intensity, squared. Deep in tissue it is dimmer, and leans to one side."""
    page = run("deconvolution")
    deep = page.point_spread()
    monkeypatch.setitem(page.point_spread.__globals__, "DEPTH", 0.0)
    water = page.point_spread()
    across = 2 * np.pi / page.WAVELENGTH * page.APERTURE * page.VOXEL[2] * np.arange(1, 9)
    disc = (2 * scipy.special.j1(across) / across) ** 4
    middle = water[10, 8, 8]
    np.testing.assert_allclose(water[10, 8, 9:] / middle, disc, rtol=0, atol=1e-4)
    np.testing.assert_allclose(water, water[::-1, ::-1, ::-1], rtol=0, atol=1e-12)
    assert water.sum() == pytest.approx(1) and deep.sum() == pytest.approx(1)
    assert deep.max() < 0.95 * middle
    assert abs(deep - deep[::-1]).max() > 0.5 * deep.max()


@pytest.mark.parametrize("chunks", [SLABS, CUBES], ids=["slabs", "cubes"])
@pytest.mark.parametrize("mode", ["symmetric", "reflect", None])
def test_the_adjoint_in_chunks(run: Run, mode: str | None, chunks: tuple) -> None:
    page = run("deconvolution")
    forward = functools.partial(page.see, mode=mode)
    backward = functools.partial(page.spread_back, mode=mode)
    assert adjoint_gap(forward, backward, *(normal(page, chunks, i) for i in (0, 1))) < 1e-12


def test_slabs_give_what_the_undivided_stack_gives(run: Run) -> None:
    page = run("deconvolution")
    assert page.gap < 1e-6
    photons, options = page.stack.compute(), dict(padding_mode="symmetric", **page.OPTIONS)
    whole = page.cupyconv.conv_transpose3d(photons, page.psf, **options)
    difference = page.spread_back(page.stack).compute() - whole
    assert float(page.xp.linalg.norm(difference) / page.xp.linalg.norm(whole)) < 1e-6


def test_what_dask_holds_does_not_grow_with_the_stack(run: Run) -> None:
    page = run("deconvolution")
    assert sorted(page.held) == [page.stack.nbytes * copies for copies in (1, 2, 4)]
    most = max(page.held)
    # A slab more or less is held at a time, as Dask orders the tasks.
    slab = page.stack.nbytes // page.stack.npartitions
    assert max(page.held.values()) - min(page.held.values()) <= slab
    assert most > 3 * page.held[most]

    def holds(chunks: tuple) -> int:
        ones = da.ones((1, 160, 64, 96), dtype=np.float32, chunks=chunks)
        with dask.config.set(scheduler="synchronous"), page.Held() as worker:
            da.store(page.see(ones.map_blocks(page.xp.asarray)).map_blocks(page.to_host), Sink())
        return worker.most

    assert holds(CUBES) > 2 * holds(SLABS)


class Sink:
    """Throws away what is stored."""

    def __setitem__(self, place: tuple[slice, ...], block: np.ndarray) -> None:
        pass


def test_deconvolution_keeps_the_photons_and_comes_nearer(run: Run) -> None:
    page = run("deconvolution")
    for mode in ("symmetric", None):
        received = page.spread_back(page.stack.map_blocks(page.xp.ones_like), mode).compute()
        for estimate in page.richardson_lucy(page.stack, 3, mode):
            assert float((received * estimate.compute()).sum()) == pytest.approx(
                float(page.stack.sum()), rel=1e-4
            )
        assert np.diff(page.errors[mode]).max() < 0
    before = float(((page.stack - page.truth) ** 2).mean()) ** 0.5
    assert page.errors["symmetric"][-1] < page.errors[None][-1] < before
    assert page.errors["symmetric"][-1] < 0.6 * before


def test_the_last_plane_shines_for_what_lies_beyond(run: Run) -> None:
    page = run("deconvolution")
    mirrored, absent = (page.last[mode] for mode in ("symmetric", None))
    assert absent.argmax() == len(absent) - 1
    assert absent[-1] > 2 * mirrored[-1]
    assert absent[0] == pytest.approx(mirrored[0], rel=0.05)
    assert mirrored.argmax() == 0


# Sparse coding, layer by layer ---------------------------------------------------------------


def test_the_dictionary_is_a_tight_frame(run: Run) -> None:
    page = run("sparse_coding")
    rng = np.random.default_rng(0)
    image = page.xp.asarray(rng.standard_normal((1, 40, 52)), dtype=np.float32)
    code = page.xp.asarray(rng.standard_normal(page.analyse(image).shape), dtype=np.float32)
    assert float(abs(page.synthesise(page.analyse(image)) - image).max()) < 1e-5
    assert adjoint_gap(page.synthesise, page.analyse, code, image) < 1e-5
    assert float((page.synthesise(code) ** 2).sum()) <= float((code**2).sum())


def test_the_objective_falls_with_each_layer(run: Run) -> None:
    page = run("sparse_coding")
    ista, fista = page.objectives["ISTA"], page.objectives["FISTA"]
    assert np.diff(ista).max() < 0
    assert fista[page.LAYERS // 2 - 1] < ista[-1]
    assert (np.array(fista) <= ista).all()


def test_the_holes_are_filled_from_few_coefficients(run: Run) -> None:
    page = run("sparse_coding")
    assert page.quality["FISTA"][-1] > page.psnr(page.picture) + 15
    assert float((page.code != 0).mean()) < 0.1


# Gabor filters and the borders of a texture -------------------------------------------------


def test_wrapped_strengths_are_those_of_a_transform(run: Run) -> None:
    """A wrapped correlation is a product of spectra."""
    page = run("textures")
    textures, bank = page.to_host(page.textures), page.to_host(page.bank)[:, 0]
    spectra = np.conj(np.fft.fft2(bank, textures.shape[2:])) * np.fft.fft2(textures)
    parts = np.roll(np.fft.ifft2(spectra).real, (page.RADIUS, page.RADIUS), axis=(2, 3))
    exact = (parts[:, ::2] ** 2) + parts[:, 1::2] ** 2
    np.testing.assert_allclose(page.to_host(page.wrapped), exact, rtol=0, atol=1e-5 * exact.max())


def test_shifting_a_texture_around_changes_no_energy(run: Run) -> None:
    page = run("textures")
    assert float(abs(page.change).max()) < 1e-5
    brick, *others = page.to_host(page.energies).sum(axis=1)
    assert set(np.argsort(brick)[-4:]) == {0, 1, 4, 7}  # around 0° and 90°
    assert brick[0] > 10 * brick[2]
    assert all(energies.max() < 2 * energies.min() for energies in others)


def test_to_wrap_a_photograph_is_the_worst_guess(run: Run) -> None:
    page = run("textures")
    errors = np.array([page.to_host(page.errors[mode]) for mode in page.MODES])
    assert (errors.argmax(axis=0) == page.MODES.index("wrap")).all()
    assert errors[:, 0].argmin() == page.MODES.index("edge")  # on brick
    inner = (..., *2 * (slice(page.RADIUS, -page.RADIUS),))
    for seen in page.responses.values():
        difference = abs(seen - page.truth)
        assert float(difference[inner].max()) < 1e-4 * float(page.truth.max())
        assert float(difference.max()) > 0.1 * float(page.truth.max())


def test_a_wrapped_tile_has_no_seam(run: Run) -> None:
    page = run("textures")
    shift = (17, 40)
    shifted = page.cupyconv.conv_transpose2d(
        page.xp.roll(page.sources, shift, axis=(1, 2)),
        page.bank,
        padding="same",
        padding_mode="wrap",
    )
    exact = page.to_host(page.xp.roll(page.tile, shift, axis=(1, 2)))
    np.testing.assert_allclose(page.to_host(shifted), exact, rtol=0, atol=1e-3)

    def seam(tile: np.ndarray) -> float:
        """The step from the last row to the first one, over the largest step inside."""
        rows = page.to_host(tile)[0]
        return abs(rows[0] - rows[-1]).mean() / abs(np.diff(rows, axis=0)).mean(axis=1).max()

    assert seam(page.tile) < 1
    assert seam(page.cut) > 2


# Coming from torch.nn.functional and cupy.cudnn ----------------------------------------------


def test_the_vessels_are_those_that_scipy_finds(run: Run) -> None:
    page = run("torch_and_cudnn")
    green = page.photograph[..., 1] / 255
    half = green.reshape(256, 2, 256, 2).mean(axis=(1, 3))
    filters = page.to_host(page.filters)[:, 0].astype(float)
    assert abs(filters.sum(axis=(1, 2))).max() < 1e-5
    assert (filters == filters[:, ::-1, ::-1]).all()
    np.testing.assert_allclose(filters[6], np.rot90(filters[0]), rtol=0, atol=1e-6)
    strongest = np.max([scipy.signal.correlate(half, f, "same") for f in filters], axis=0)
    exact = scipy.ndimage.zoom(strongest, 2, order=1, mode="nearest", grid_mode=True)
    found = page.to_host(page.found)[0, 0]
    np.testing.assert_allclose(found[2:-2, 2:-2], exact[2:-2, 2:-2], rtol=0, atol=1e-4)


def test_both_scripts_become_the_same(run: Run) -> None:
    page = run("torch_and_cudnn")
    assert bool((page.again == page.found).all())
    exact = page.photograph.reshape(256, 2, 256, 2, 3).mean(axis=(1, 3)).transpose(2, 0, 1) / 255
    np.testing.assert_allclose(page.to_host(page.halves)[0], exact, rtol=0, atol=1e-6)
