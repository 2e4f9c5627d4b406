import pytest

from ddpdoctor.host.proc import without_padding


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["ray::RayTrainWorker", "", ""], ("ray::RayTrainWorker",)),
        (["python", "train.py", ""], ("python", "train.py", "")),
        ([], ()),
    ],
)
def test_a_process_that_has_renamed_itself_has_one_word(words, shown):
    assert without_padding(words) == shown
