"""Frames of stacks: which of them a finding names."""

import pytest

from ddpdoctor.blame.frames import Frame, fold_libraries, innermost_of_script, is_of_script, where_in

SCRIPT = Frame("train", "/home/me/train.py", 12)
CALLBACK = Frame("on_batch_end", "/home/me/callbacks.py", 5)
TORCH = Frame("backward", "/usr/lib/python3.11/site-packages/torch/autograd/graph.py", 979)
FRAMEWORK = Frame("fit", "/usr/lib/python3.11/site-packages/lightning/trainer.py", 600)


def test_a_line_of_the_script_is_named_before_those_of_libraries():
    assert where_in((SCRIPT, TORCH)).line == 12
    assert where_in((SCRIPT, FRAMEWORK, CALLBACK, FRAMEWORK, TORCH)).line == 5


def test_without_a_line_of_the_script_the_innermost_is_named():
    assert where_in((FRAMEWORK, TORCH)).line == 979
    assert where_in(()) is None


PACKAGES = "/opt/venv/lib/python3.11/site-packages"
STARTS = {
    "-m": Frame("_run_code", "<frozen runpy>", 88),
    "-m, Python 3.10": Frame("_run_code", "/usr/lib/python3.10/runpy.py", 86),
    "a command": Frame("<module>", "/opt/venv/bin/acme-train", 8),
    "mp.spawn": Frame("_wrap", f"{PACKAGES}/torch/multiprocessing/spawn.py", 90),
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_of_a_script_in_an_installed_package_the_innermost_line_of_that_package_is_named(start):
    stack = (
        start,
        Frame("main", f"{PACKAGES}/acme/cli.py", 9),
        Frame("fit", f"{PACKAGES}/lightning/trainer.py", 600),
        Frame("training_step", f"{PACKAGES}/acme/module.py", 33),
        Frame("barrier", f"{PACKAGES}/acme_tools/barrier.py", 2),
        TORCH,
    )
    where = innermost_of_script(stack)
    assert (where.file, where.line) == (f"{PACKAGES}/acme/module.py", 33)
    assert str(where) == "acme/module.py:33"


def test_a_process_of_a_framework_has_no_line_of_a_script():
    worker = Frame("<module>", f"{PACKAGES}/ray/_private/workers/default_worker.py", 300)
    assert innermost_of_script((worker, FRAMEWORK, TORCH)) is None


@pytest.mark.parametrize(
    "file",
    [
        "lib/python3.9/os.py",
        r"C:\Python311\Lib\site-packages\torch\nn\modules\module.py",
        r"C:\Users\pc\Programs\Python\Python311\Lib\runpy.py",
    ],
)
def test_the_files_of_python_and_its_packages_are_no_script_under_any_kind_of_path(file):
    assert not is_of_script(Frame("f", file, 1))


def test_a_folder_of_the_script_that_is_named_lib_is_its_own():
    assert is_of_script(Frame("f", r"C:\work\lib\train.py", 1))


def test_frames_of_libraries_are_counted():
    text = (
        "Traceback (most recent call last):\n"
        '  File "/jobs/train.py", line 9, in main\n    model(x)\n    ^^^^^^^^\n'
        '  File "/v/lib/python3.11/site-packages/torch/nn/module.py", line 3, in _call\n    return f()\n'
        '  File "/v/lib/python3.11/site-packages/torch/nn/linear.py", line 4, in forward\n    return g()\n'
        "RuntimeError: shapes\n    8x5 and 4x2\n"
    )
    assert fold_libraries(text).splitlines()[1:] == [
        '  File "/jobs/train.py", line 9, in main',
        "    model(x)",
        "    ^^^^^^^^",
        "  ... 2 frames in libraries",
        "RuntimeError: shapes",
        "    8x5 and 4x2",
    ]


def test_a_traceback_without_a_frame_of_the_script_stays():
    text = 'Traceback (most recent call last):\n  File "/v/lib/python3.11/threading.py", line 9, in run\nValueError'
    assert fold_libraries(text) == text


def test_torch_where_it_was_built_and_packages_of_a_folder_of_their_own_are_no_script(tmp_path):
    (tmp_path / "built" / "torch" / "autograd").mkdir(parents=True)
    (tmp_path / "built" / "torch" / "version.py").touch()
    (tmp_path / "libs" / "acme-1.0.dist-info").mkdir(parents=True)
    (tmp_path / "libs" / "acme-1.0.dist-info" / "RECORD").write_text("acme/engine.py,,\nacme/cli.py,,\n")
    graph = Frame("backward", f"{tmp_path}/built/torch/autograd/graph.py", 9)
    engine = Frame("fit", f"{tmp_path}/libs/acme/engine.py", 5)
    script = Frame("main", f"{tmp_path}/libs/train.py", 3)
    assert innermost_of_script((script, engine, graph)).line == 3
    # Near: nothing but the package itself runs, by its path; and a folder of the script's that is named torch.
    assert (
        innermost_of_script((Frame("<module>", f"{tmp_path}/libs/acme/cli.py", 1), engine, graph)).line == 5
    )
    (tmp_path / "torch").mkdir()
    assert is_of_script(Frame("f", f"{tmp_path}/torch/train.py", 1))
