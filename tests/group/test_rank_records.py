"""What is read from the folder of a group that ended."""

from ddpdoctor.group.rank_state import last_words, log_lines
from ddpdoctor.job.guarded import ENGINE_LOG

WARNING = """/v/torch/functional_tensor.py:368: UserWarning: Failed to initialize NumPy: No module named 'numpy'
  cpu = _conversion_method_template(device=torch.device("cpu"))
"""
RAISED = """Traceback (most recent call last):
  File "/v/torch/functional_tensor.py", line 368, in FunctionalTensor
    cpu = _conversion_method_template(device=torch.device("cpu"))
                                      ^^^^^^^~~~~~~^^^^^^
UserWarning: Failed to initialize NumPy: No module named 'numpy'
"""


def test_a_healthy_groups_warnings_are_no_words(tmp_path):
    (tmp_path / ENGINE_LOG).write_text(WARNING)
    assert log_lines(tmp_path) == []
    assert last_words(tmp_path) == ""


def test_the_same_warning_as_an_error_is_the_last_word(tmp_path):
    (tmp_path / ENGINE_LOG).write_text(RAISED)
    assert last_words(tmp_path) == "UserWarning: Failed to initialize NumPy: No module named 'numpy'"
