# %% [markdown]
# # Sounds: separating a mixture
#
# The magnitudes of a spectrogram are nearly a sum over the notes being played. Each note is a
# spectrum (a column of W) times a loudness in time (a column of H). Kullback–Leibler suits them,
# since it also fits quiet partials. A Wiener mask turns each component back into sound: its share
# of the sum, applied to the mixture.
#
# We make the mixture here from a bass, a bell and a shaker, so that we can score the separation
# against the truth.

# %%
import matplotlib.pyplot as plt
import numpy as np
from scipy.io import wavfile
from scipy.signal import ShortTimeFFT
from scipy.signal.windows import hann

import factormer

RATE, SECONDS = 11025, 5
rng = np.random.default_rng(0)


def voice(starts, pitches, partials, decay):
    """Notes of a sum of decaying partials."""
    sound = np.zeros(RATE * SECONDS)
    for start, pitch in zip(starts, pitches, strict=True):
        t = np.arange(len(sound) - int(start * RATE)) / RATE
        for k, size in enumerate(partials, start=1):
            fading = np.exp(-decay * (0.7 + 0.3 * k) * t) * np.minimum(1, t / 0.01)
            sound[-len(t) :] += size * fading * np.sin(2 * np.pi * k * pitch * t)
    return sound


def write(name, sound):
    """A file of 16 bits, as loud as it can be."""
    wavfile.write(name, RATE, np.int16(29000 * sound / np.abs(sound).max()))


shaker = np.zeros(RATE * SECONDS)
for start in np.arange(0.125, SECONDS, 0.25):
    t = np.arange(len(shaker) - int(start * RATE)) / RATE
    shaker[-len(t) :] += rng.normal(size=len(t)) * np.exp(-60 * t)

G, E, A, D = 784.0, 659.3, 880.0, 146.8
truth = {
    "bass": 0.5 * voice(np.arange(0, 5), [110, 82.4, 110, D, 110], [1, 0.5, 0.2], 2),
    "bell": 0.35 * voice(np.arange(0.25, 5, 0.5), [E, G, A, E, G] * 2, [1, 0, 0.4, 0, 0.25], 4),
    "shaker": 0.25 * shaker,
}
mixture = sum(truth.values())
write("mixture.wav", mixture)

# %%
stft = ShortTimeFFT(hann(512, sym=False), hop=128, fs=RATE)
spectrogram = stft.stft(mixture)
V = np.abs(spectrogram)
result = factormer.factorize(V, 8, loss="kullback-leibler", max_iter=300, random_state=0)
print(f"{V.shape[0]} frequencies × {V.shape[1]} frames: {result.status}")

# %% [markdown]
# Which components belong together? Noise has a flat spectrum, tones have peaks, and the bass is
# low. This needs no knowledge of the truth.

# %%
flatness = np.exp(np.log(result.W + 1e-9).mean(axis=0)) / result.W.mean(axis=0)
peak = stft.f[result.W.argmax(axis=0)]
member = np.where(flatness > 0.1, "shaker", np.where(peak < 300, "bass", "bell"))
for name in truth:
    print(f"{name:>6}: peaks at", ", ".join(f"{f:.0f} Hz" for f in sorted(peak[member == name])))


# %%
def distortion_ratio(true, estimate):
    """Signal-to-distortion ratio in decibels, free of the volume."""
    target = (true @ estimate) / (true @ true) * true
    return 10 * np.log10((target @ target) / np.sum((estimate - target) ** 2))


whole = result.W @ result.H.T + 1e-12
separated = {}
for name, true in truth.items():
    mask = (result.W[:, member == name] @ result.H[:, member == name].T) / whole
    separated[name] = stft.istft(mask * spectrogram, k1=len(mixture))
    before, after = distortion_ratio(true, mixture), distortion_ratio(true, separated[name])
    print(f"{name:>6}: {before:5.1f} dB in the mixture, {after:4.1f} dB separated")
    write(f"{name}.wav", separated[name])

# %%
figure, axes = plt.subplots(
    1,
    4,
    num="The mixture, and what was found in it",
    layout="constrained",
    figsize=(8.4, 2.6),
    sharey=True,
)
for ax, (name, sound) in zip(axes, {"mixture": mixture, **separated}.items(), strict=True):
    decibels = 20 * np.log10(np.abs(stft.stft(sound)) + 1e-6)
    top = 20 * np.log10(V.max())
    extent = (0, SECONDS, 0, RATE / 2000)
    drawn = ax.imshow(
        decibels,
        origin="lower",
        aspect="auto",
        extent=extent,
        vmin=top - 60,
        vmax=top,
        cmap="magma",
    )
    ax.set_title(name)
    ax.set_xlabel("seconds")
axes[0].set_ylabel("kHz")
figure.colorbar(drawn, ax=axes, label="dB", shrink=0.9)
plt.show()

# %%
figure, (left, right) = plt.subplots(
    1, 2, num="The eight components", layout="constrained", figsize=(8.4, 3), width_ratios=[1, 1.6]
)
order = np.lexsort((peak, member))
for place, k in enumerate(order):
    colour = f"C{['bass', 'bell', 'shaker'].index(member[k])}"
    spectrum, loudness = (
        result.W[:, k] / result.W[:, k].max(),
        result.H[:, k] / result.H[:, k].max(),
    )
    left.fill_between(stft.f / 1000, place, place + 0.85 * spectrum, color=colour)
    right.fill_between(stft.t(len(mixture)), place, place + 0.85 * loudness, color=colour)
right.set_yticks(np.arange(8) + 0.3, member[order])
for ax, label in zip((left, right), ("kHz", "seconds"), strict=True):
    ax.tick_params(left=False)
    ax.spines["left"].set_visible(False)
    ax.set_xlabel(label)
left.set_yticks([])
left.set_title("spectra")
right.set_title("loudness")
plt.show()
