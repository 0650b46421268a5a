"""Sound: a .wav file as its magnitude spectrogram."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import scipy.io.wavfile
from scipy.signal import ShortTimeFFT, windows

from factormer.app.read.data import Axis, Data, DataError, reading

_WINDOW = 0.046  # seconds: long enough to tell neighbouring notes apart, short enough for onsets


def read_wav(path: Path) -> Data:
    """|STFT| with a Hann window of about 46 ms, moved by a quarter of it: frames × frequencies.

    Channels are averaged. Rows are moments in time, so that a component is a spectrum and its
    column of W says when it sounds.
    """
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
    transform = ShortTimeFFT(windows.hann(width, sym=False), hop, rate, scale_to="magnitude")
    times = transform.t(len(sound))
    inside = (times >= 0) & (times <= len(sound) / rate)
    V = np.abs(transform.stft(sound)).T[inside].astype(np.float32)
    moments = tuple(float(t) for t in times[inside])
    frequencies = tuple(float(f) for f in transform.f)
    return Data(
        np.ascontiguousarray(V),
        Axis(len(moments), "frame", positions=moments, unit="s"),
        Axis(len(frequencies), "frequency", positions=frequencies, unit="Hz"),
        path.stem,
        f"{len(sound) / rate:.1f} s of sound at {rate / 1000:g} kHz; "
        f"spectrogram with windows of {width} samples, moved by {hop}",
    )
