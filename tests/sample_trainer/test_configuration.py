"""What can be set, and what is said of what cannot."""

from pathlib import Path
from types import ModuleType

import pytest

from tests.sample_trainer.bundled import FOLDER, module


@pytest.fixture(scope="module")
def reader() -> ModuleType:
    return module("config")


def refusal(reader: ModuleType, *words: str, file: Path | None = None) -> str:
    with pytest.raises(reader.TrainerError) as raised:
        reader.read_config(file, words)
    return str(raised.value)


def test_words_change_a_file_and_a_file_changes_the_defaults(reader, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("train:\n  epochs: 3\noptimizer:\n  lr: 1e-3\ndata:\n")
    config = reader.read_config(file, ["train.epochs=4", "train.clip=none", "data.pin_memory=true"])
    assert (config.run.name, config.train.epochs, config.train.clip) == ("mine", 4, None)
    assert (config.optimizer.lr, config.data.pin_memory, config.data.batch_size) == (1e-3, True, 8)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("train.epoch=2", "unknown key 'train.epoch'; did you mean train.epochs?"),
        ("batchsize=2", "unknown key 'batchsize'; did you mean data.batch_size?"),
        ("optimizer.momentun=0", "unknown key 'optimizer.momentun'; did you mean optimizer.momentum?"),
        ("train.epochs=two", "train.epochs is 'two'; it takes a whole number"),
        ("train.epochs=2.5", "train.epochs is '2.5'; it takes a whole number"),
        ("optimizer.lr=nan", "optimizer.lr is 'nan'; it takes a number"),
        ("optimizer.lr=inf", "optimizer.lr is 'inf'; it takes a number"),
        ("data.batch_size=1" + "0" * 10, "data.batch_size is 10000000000; it has to be at most 1000000000"),
        ("run.name=\udcff", "run.name is '\\udcff'; it takes text"),
        ("model.dropout=2", "model.dropout is 2.0; it has to be at most 1"),
        ("parallel.timeout=1e15", "parallel.timeout is 1000000000000000.0; it has to be at most 100000000"),
        ("data.source=", "data.source is empty: it takes builtin, a file or a folder"),
        ("data.pin_memory=1", "data.pin_memory is '1'; it takes true or false"),
        ("parallel.world_size=0", "parallel.world_size is 0; it has to be at least 1"),
        ("train.clip=high", "train.clip is 'high'; it takes a number, or null"),
        (
            "train.precision=half",
            "train.precision is 'half'; it takes one of float32, bfloat16, float16",
        ),
        ("epochs", "'epochs' is not KEY=VALUE, such as train.epochs=2"),
        ("model.heads=5", "model.width 32 is not a multiple of model.heads 5"),
        ("checkpoint.resume=true", "checkpoint.resume needs run.folder: the run to go on with"),
    ],
)
def test_a_wrong_word_is_refused(reader, word, said):
    assert refusal(reader, word) == said


def test_an_unknown_key_far_from_all_names_the_sections(reader):
    assert refusal(reader, "zzzzzz=1").startswith(
        "unknown key 'zzzzzz'; the sections are parallel, data, model"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("train:\n  epochs: [2]\n", "train.epochs is [2] in FILE; it takes a whole number"),
        ("train:\n  epochs: true\n", "train.epochs is True in FILE; it takes a whole number"),
        ("train: 3\n", "train is 3 in FILE; it takes keys of its own, below it"),
        ('run:\n  folder: "a\\0"\n', "run.folder is 'a\\x00' in FILE; it takes text, or null"),
        ("[" * 9000, "FILE is not a configuration: it is nested too deeply"),
        ("- train\n", "FILE has no sections, such as train: with epochs: 2 below it"),
        ("train: [\n", "FILE is not YAML: while parsing"),
    ],
)
def test_a_wrong_file_is_refused(reader, tmp_path, text, said):
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    assert refusal(reader, file=file).replace(str(file), "FILE").startswith(said)


def test_a_missing_file_is_refused(reader, tmp_path):
    assert refusal(reader, file=tmp_path / "no.yaml").endswith("no.yaml: No such file or directory")


@pytest.mark.parametrize("file", sorted((FOLDER / "configs").glob("*.yaml")), ids=lambda file: file.stem)
def test_a_configuration_of_ours_says_what_it_is(reader, file):
    assert file.read_text().startswith("# ")
    reader.read_config(file)


def test_what_is_shown_is_read_again(reader, tmp_path):
    config = reader.read_config(FOLDER / "configs" / "sgd.yaml", ["run.name=shown", "train.steps=3"])
    (tmp_path / "shown.yaml").write_text(module("config").show(config))
    assert reader.read_config(tmp_path / "shown.yaml") == config
