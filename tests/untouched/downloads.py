# ruff: noqa: PTH103, PTH107, PTH123 - files are written and addresses opened as scripts do

"""Downloads in several ways, and writes what is none: ``python downloads.py SERVER SERVER-IN-CHUNKS NAME...``."""

import http.client
import os
import random
import shutil
import sys
import tarfile
import time
import traceback
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path

DATA = random.Random(1).randbytes(5000)
WAYS: dict[str, tuple[str, tuple[str, ...], Callable[[str, str], object]]] = {}
"""Each with the module that it needs, and the files that are to stay."""


def _way(*files: str, needs: str = "urllib") -> Callable[[Callable[[str, str], object]], object]:
    def register(function: Callable[[str, str], object]) -> object:
        WAYS[function.__name__] = (needs, files, function)
        return function

    return register


@_way("raw/deep/data.bin")
def retrieve(server: str, _: str) -> None:
    os.makedirs("raw/deep")
    urllib.request.urlretrieve(f"{server}/data.bin", "raw/deep/data.bin")


@_way("copied.bin")
def copy_an_answer_beside_and_replace(_: str, chunks: str) -> None:
    with urllib.request.urlopen(f"{chunks}/data.bin") as answer, open("copied.part", "wb") as file:
        shutil.copyfileobj(answer, file, 333)
    os.replace("copied.part", "copied.bin")  # noqa: PTH105


@_way("read/into.bin")
def read_into_a_buffer(server: str, _: str) -> None:
    os.makedirs("read")
    buffer = bytearray(DATA)
    with urllib.request.urlopen(f"{server}/data.bin") as answer:
        answer.readinto(buffer)
    Path("read/into.bin").write_bytes(buffer)


@_way("hub.bin", needs="torch")
def torch_hub(server: str, _: str) -> None:
    import torch

    torch.hub.download_url_to_file(f"{server}/data.bin", "hub.bin", progress=False)


@_way("requested.bin", "requested-in-chunks.bin", "gzip.bin", needs="requests")
def requests(server: str, chunks: str) -> None:
    import requests

    Path("requested.bin").write_bytes(requests.get(f"{server}/data.bin", timeout=60).content)
    Path("gzip.bin").write_bytes(requests.get(f"{server}/data.bin?gzip", timeout=60).content)
    with open("requested-in-chunks.bin", "wb") as file:
        for piece in requests.get(f"{chunks}/data.bin", stream=True, timeout=60).iter_content(100):
            file.write(piece)


@_way("archive/data.tgz", "tar/images/one.bin")
def unpack(server: str, _: str) -> None:
    os.makedirs("archive")
    urllib.request.urlretrieve(f"{server}/data.tgz", "archive/data.tgz")
    with tarfile.open("archive/data.tgz") as archive:
        archive.extractall("tar")


@_way("zip/images/two.bin")
def unpack_and_remove_the_archive(server: str, _: str) -> None:
    urllib.request.urlretrieve(f"{server}/data.zip", "data.zip")
    with zipfile.ZipFile("data.zip") as archive:
        archive.extractall("zip")
    os.remove("data.zip")


@_way("images/train/images/one.bin", needs="torchvision")
def torchvision(server: str, _: str) -> None:
    from torchvision.datasets.utils import download_and_extract_archive

    download_and_extract_archive(f"{server}/data.tgz", "images", "images/train", remove_finished=True)


@_way()
def over_a_file_that_was_there(server: str, _: str) -> None:
    urllib.request.urlretrieve(f"{server}/data.bin", "existing.bin")


@_way()
def changed_after_it_was_downloaded(server: str, _: str) -> None:
    urllib.request.urlretrieve(f"{server}/data.bin", "tuned.pt")
    with open("tuned.pt", "r+b") as file:
        file.write(b"trained")


@_way()
def a_checkpoint_of_a_script_that_hears_from_a_server(server: str, _: str) -> None:
    with urllib.request.urlopen(f"{server}/data.bin") as answer:
        Path("best.pt").write_bytes(answer.read()[::-1])
    with urllib.request.urlopen(f"{server}/data.bin") as answer:
        Path("new.pt").write_bytes(answer.read()[:-1])


@_way()
def what_a_server_was_told(server: str, _: str) -> None:
    record = b"step 100, loss 0.25" * 10
    with urllib.request.urlopen(f"{server}/log", data=record) as answer:
        Path("log.txt").write_bytes(answer.read())


@_way()
def a_checkpoint_that_another_rank_gets_from_a_server(server: str, _: str) -> None:
    weights = random.Random(2).randbytes(5000)
    Path("rank-0.pt").write_bytes(weights)
    time.sleep(0.1)
    with urllib.request.urlopen(f"{server}/rank-0.pt", data=weights):
        pass
    urllib.request.urlretrieve(f"{server}/rank-0.pt", "rank-1.pt")


@_way()
def an_answer_that_ends_early(server: str, _: str) -> None:
    try:
        with urllib.request.urlopen(f"{server}/data.bin?cut") as answer, open("cut.bin", "wb") as file:
            file.write(answer.read())
    except http.client.IncompleteRead:
        assert "recorder" not in traceback.format_exc()
    else:
        raise AssertionError


@_way("model/weights.bin", needs="huggingface_hub")
def hugging_face(server: str, _: str) -> None:
    from huggingface_hub import hf_hub_download

    hf_hub_download("someone/model", "weights.bin", local_dir="model", endpoint=server)


@_way()
def hardly_anything(server: str, _: str) -> None:
    with urllib.request.urlopen(f"{server}/short", data=b"{}"), urllib.request.urlopen(f"{server}/short"):
        Path("options.json").write_text("{}")


def main(servers: list[str], names: list[str]) -> None:
    for name in names:
        WAYS[name][2](*servers)


if __name__ == "__main__":
    main(sys.argv[1:3], sys.argv[3:])
