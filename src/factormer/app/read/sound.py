"""Sound: a .wav file as its magnitude spectrogram, and its components as sounds."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.io.wavfile
from jaxtyping import Float
from scipy.signal import ShortTimeFFT, windows

from factormer.app.read.data import Axis, Data, DataError, reading

_WINDOW = 0.046  # seconds: long enough to tell neighbouring notes apart, short enough for onsets


class _Heard(NamedTuple):
    """A sound of one channel, and its transform: frequencies × all frames."""

    rate: int
    sound: np.ndarray
    transform: ShortTimeFFT
    width: int

    @property
    def inside(self) -> np.ndarray:
        """The frames whose middle is in the sound."""
        times = self.transform.t(len(self.sound))
        return (times >= 0) & (times <= len(self.sound) / self.rate)


def read_wav(path: Path) -> Data:
    """|STFT| with a Hann window of about 46 ms, moved by a quarter of it: frames × frequencies.

    Channels are averaged. Rows are moments in time, so that a component is a spectrum and its
    column of W says when it sounds.
    """
    heard = _heard(path)
    rate, sound, transform, width = heard
    V = np.abs(transform.stft(sound)).T[heard.inside].astype(np.float32)
    moments = tuple(float(t) for t in transform.t(len(sound))[heard.inside])
    frequencies = tuple(float(f) for f in transform.f)
    return Data(
        np.ascontiguousarray(V),
        Axis(len(moments), "frame", positions=moments, unit="s"),
        Axis(len(frequencies), "frequency", positions=frequencies, unit="Hz"),
        path.stem,
        f"{len(sound) / rate:.1f} s of sound at {rate / 1000:g} kHz; "
        f"spectrogram with windows of {width} samples, moved by {width // 4}",
    )


def components(
    path: Path, W: Float[np.ndarray, "m r"], H: Float[np.ndarray, "n r"]
) -> Iterator[tuple[int, Float[np.ndarray, " t"]]]:
    """The samples a second, and the sound of each component, which together are the whole sound.

    Each gets the share w_c h_cᵀ / W Hᵀ of every entry of the transform, with its phase (Wiener).
    """
    heard = _heard(path)
    spectrum, inside = heard.transform.stft(heard.sound), heard.inside
    if (len(W), len(H)) != (int(inside.sum()), len(spectrum)):
        raise DataError(f"{path} is not the sound that was fitted: fit it again")
    fit = H @ W.T  # (n, m)
    nothing = fit <= 0
    for w, h in zip(W.T, H.T, strict=True):
        share = np.where(nothing, 1 / W.shape[1], np.outer(h, w) / np.where(nothing, 1.0, fit))
        whole = np.full(
            spectrum.shape, 1 / W.shape[1]
        )  # frames before the first and after the last
        whole[:, inside] = share
        yield heard.rate, np.real(heard.transform.istft(spectrum * whole, k1=len(heard.sound)))


def write_wav(path: Path, rate: int, sound: Float[np.ndarray, " t"]) -> None:
    """Samples between -1 and 1 as a .wav file of 16 bits."""
    levels = (np.clip(sound, -1, 1) * np.iinfo(np.int16).max).round().astype(np.int16)
    scipy.io.wavfile.write(path, rate, levels)


def _heard(path: Path) -> _Heard:
    with reading(path, "a wav file"), warnings.catch_warnings():
        warnings.simplefilter("ignore", scipy.io.wavfile.WavFileWarning)  # chunks of no use here
        rate, sound = scipy.io.wavfile.read(path)
    if sound.dtype == np.uint8:  # the only sample type not centred at zero
        sound = (sound.astype(np.float64) - 128) / 127
    elif sound.dtype.kind == "i":
        sound = sound / float(np.iinfo(sound.dtype).max)
    if sound.ndim == 2:
        sound = sound.mean(axis=1)
    width = round(2.0 ** round(np.log2(_WINDOW * max(rate, 1))))
    hop = width // 4
    if not hop:
        raise DataError(f"{path} has {rate} samples a second; sound must have 100 at least")
    if len(sound) < width:
        raise DataError(
            f"{path} lasts {len(sound) / rate:.3f} s; it must last {width / rate:.3f} s at least, "
            "a window of the spectrogram"
        )
    window = windows.hann(width, sym=False)
    transform = ShortTimeFFT(window, hop, rate, scale_to="magnitude")
    return _Heard(rate, sound, transform, width)
