r"""
Reverberation of a concert hall
===============================

A hall convolves each sound with its impulse response, the echo of a single clap. It rings for
seconds, so this kernel has ten thousands of taps, and a sum over taps takes as many products for
each sample of the sound. ``method="fft"`` multiplies spectra instead.

This page builds the impulse responses of a hall at two ears, lets it ring, and then measures it
from noise that is played and recorded in it, by least squares.

*Data:* none of the packages that the examples need has a recording of music, so the strings are
synthetic, by the algorithm of Karplus and Strong [1]_, and the hall by that of Allen and Berkley
[2]_. ``scipy.io.wavfile.read`` gives a sound of your own.
"""

import math

import matplotlib.pyplot as plt
import numpy as np

import cupyconv
from gallery import BLUE, GREEN, GREY, ORANGE, plots, to_host, xp

# %%
# Three strings
# -------------
#
# A plucked string is noise that runs around in a loop, smoothed and weakened in each period.

RATE = 16_000  # samples a second
rng = np.random.default_rng(0)


def pluck(pitch, seconds):
    periods = [rng.uniform(-1, 1, round(RATE / pitch))]
    for _ in range(int(seconds * pitch)):
        periods.append(0.495 * (periods[-1] + np.roll(periods[-1], 1)))
    return np.concatenate(periods)[: int(seconds * RATE)]


dry = np.zeros(5 * RATE)
for start, pitch in ((0, 220.0), (RATE // 2, 277.18), (RATE, 329.63)):
    dry[start : start + 2 * RATE] += pluck(pitch, 2)
dry = xp.asarray(dry[None], dtype=xp.float32)  # one channel

# %%
# A hall
# ------
#
# Six mirrors make a lattice of images of the source. The sound of each arrives later and weaker
# with its distance, and weaker again by each wall that it has met.

HALL, SOURCE = (24.0, 16.0, 9.0), (6.0, 7.0, 2.0)  # metres
EARS = (17.0, 8.0, 1.5), (17.0, 8.2, 1.5)
REFLECTED, SPEED, TAPS = 0.9, 343.0, 2 * RATE  # of the pressure; metres a second


def impulse_response(ear):
    squares, bounces = np.zeros(1), np.zeros(1)
    for size, source, place in zip(HALL, SOURCE, ear, strict=True):
        count = math.ceil(SPEED * TAPS / RATE / (2 * size))
        n, side = np.mgrid[-count : count + 1, 0:2].reshape(2, -1)
        image = (1 - 2 * side) * source + 2 * n * size
        squares = np.add.outer(squares, (image - place) ** 2).ravel()
        bounces = np.add.outer(bounces, abs(n - side) + abs(n)).ravel()
    distance = np.sqrt(squares)
    arrival = (distance * RATE / SPEED).astype(int)
    heard = np.bincount(arrival, REFLECTED**bounces / distance, TAPS)[:TAPS]
    # The images have equal signs and add up at the lowest frequencies, which no loudspeaker has.
    return heard - np.convolve(heard, np.full(RATE // 100, 100 / RATE), "same")


# %%
# Two ears are two output channels. The kernel is not flipped, so an impulse response is given in
# reverse; with padding before the sound alone, nothing is heard before it is played.

hall = np.array([[impulse_response(ear)[::-1]] for ear in EARS])
hall = xp.asarray(hall, dtype=xp.float32)
options = dict(padding=((TAPS - 1, 0),), method="fft")


def ring(sound, kernels):
    return cupyconv.conv1d(sound, kernels, **options)


wet = ring(dry, hall)
axes = plots("dry", "in the hall, left ear", xlabel="seconds", sharex=True)
for ax, sound, colour in zip(axes, (dry, wet), (GREY, BLUE), strict=True):
    ax.plot(np.arange(5 * RATE) / RATE, to_host(sound[0]), color=colour, linewidth=0.3)
plt.show()

# %%
# Measured with noise
# -------------------
#
# Six seconds of noise are played, and recorded with some noise of the room. The impulse response
# that fits best is the solution of a linear system, which conjugate gradients solve with two
# convolutions an iteration: the one that records, and its gradient with respect to the weight,
# which is its adjoint as a function of the impulse response. Both take an FFT.

played = xp.asarray(rng.standard_normal((1, 6 * RATE)), dtype=xp.float32)
hiss = xp.asarray(rng.standard_normal((2, 6 * RATE)), dtype=xp.float32)
recorded = ring(played, hall)
recorded += 0.01 * recorded.std() * hiss


def correlate(heard):
    return cupyconv.grad.conv1d_weight(played, hall.shape, heard, **options)


kernels = xp.zeros_like(hall)
rest = correlate(recorded)
direction, energy = rest, float((rest**2).sum())
deviations = []
for _ in range(12):
    heard = ring(played, direction)
    step = energy / float((heard**2).sum())
    kernels = kernels + step * direction
    rest = rest - step * correlate(heard)
    before, energy = energy, float((rest**2).sum())
    direction = rest + energy / before * direction
    deviations.append(float(xp.linalg.norm(kernels - hall) / xp.linalg.norm(hall)))
print("relative error of the measured response:", *(f"{value:.3f}" for value in deviations[::3]))


def decay(kernels):
    """Energy that is still to come at each tap, of the left ear, in dB."""
    to_come = np.cumsum(to_host(kernels[0, 0]).astype(float) ** 2)[::-1]
    return 10 * np.log10(to_come.clip(1e-12 * to_come[0]) / to_come[0])


levels = {"true": decay(hall), "measured": decay(kernels)}
late = np.flatnonzero((levels["measured"] < -5) & (levels["measured"] > -25))
reverberation = 3 * (late[-1] - late[0]) / RATE  # the time of 60 dB, from 20 of them
print(f"reverberation time: {reverberation:.2f} s")

axes = plots("relative error", "decay of the hall", xlabel="iteration")
axes[0].semilogy(deviations, "o-", color=GREEN)
for (name, level), colour in zip(levels.items(), (GREY, ORANGE), strict=True):
    axes[1].plot(np.arange(TAPS) / RATE, level, color=colour, label=name)
axes[1].set(xlabel="seconds", ylabel="dB")
axes[1].legend(fontsize=8, frameon=False)
plt.show()

# %%
# .. [1] K. Karplus and A. Strong, `Digital synthesis of plucked-string and drum timbres
#    <https://doi.org/10.2307/3680062>`__, Computer Music Journal 7, 1983.
# .. [2] J. B. Allen and D. A. Berkley, `Image method for efficiently simulating small-room
#    acoustics <https://doi.org/10.1121/1.382599>`__, JASA 65, 1979.
