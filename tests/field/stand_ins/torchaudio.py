"""torchaudio's binary belongs to one build of torch: files are read by soundfile, and a spectrum is torch.stft's."""

import sys
import types

import torch

transforms = types.ModuleType("torchaudio.transforms")
functional = types.ModuleType("torchaudio.functional")
sys.modules.update({module.__name__: module for module in (transforms, functional)})


def load(path):
    import soundfile

    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    return torch.from_numpy(samples.T.copy()), rate


def save(path, samples, rate):
    import soundfile

    soundfile.write(path, samples.T.numpy(), rate)


def resample(samples, orig_freq, new_freq):
    """Linear interpolation."""
    length = -(-samples.shape[-1] * new_freq // orig_freq)
    return torch.nn.functional.interpolate(samples[None], size=length, mode="linear")[0]


functional.resample = resample


class Spectrogram(torch.nn.Module):
    """Complex: of what the scripts ask for, power is None."""

    def __init__(self, n_fft=400, win_length=None, hop_length=None, window_fn=torch.hann_window, **options):
        super().__init__()
        self.n_fft, self.win_length = n_fft, win_length or n_fft
        self.hop_length = hop_length or self.win_length // 2
        self.options = {key: options[key] for key in ("normalized", "center") if key in options}
        self.register_buffer("window", window_fn(self.win_length))

    def forward(self, samples):
        flat = samples.reshape(-1, samples.shape[-1])
        own = (self.n_fft, self.hop_length, self.win_length, self.window)
        spectrum = torch.stft(flat, *own, return_complex=True, **self.options)
        return spectrum.reshape(*samples.shape[:-1], *spectrum.shape[-2:])


class MelSpectrogram(torch.nn.Module):
    def __init__(
        self,
        sample_rate=16000,
        n_fft=400,
        win_length=None,
        hop_length=None,
        n_mels=128,
        window_fn=torch.hann_window,
        **_,
    ):
        super().__init__()
        self.n_fft, self.win_length = n_fft, win_length or n_fft
        self.hop_length = hop_length or self.win_length // 2
        self.register_buffer("window", window_fn(self.win_length))
        self.register_buffer("bank", torch.ones(n_mels, n_fft // 2 + 1) / n_fft)

    def forward(self, samples):
        spectrum = torch.stft(
            samples, self.n_fft, self.hop_length, self.win_length, self.window, return_complex=True
        )
        return self.bank @ spectrum.abs().pow(2)


transforms.MelSpectrogram, transforms.Spectrogram = MelSpectrogram, Spectrogram


def fbank(samples, num_mel_bins=23, **options):
    """Log energies of a spectrum's bands, each as wide as the others."""
    window = torch.hann_window(400)
    spectrum = torch.stft(samples[0], 400, 160, window=window, center=False, return_complex=True).abs()
    bands = torch.nn.functional.interpolate(spectrum.T[None], size=num_mel_bins, mode="linear")
    return bands[0].clamp(min=1e-6).log()


compliance = types.ModuleType("torchaudio.compliance")
compliance.kaldi = types.ModuleType("torchaudio.compliance.kaldi")
compliance.kaldi.fbank = fbank
sys.modules.update({module.__name__: module for module in (compliance, compliance.kaldi)})
