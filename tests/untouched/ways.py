# ruff: noqa: PTH101, PTH102, PTH103, PTH104, PTH105, PTH106, PTH107, PTH123, PTH211 - files are written in all ways

"""Writes in every way, each in a folder of its own: ``python ways.py FOLDER [NAME...]``; without torch."""

import contextlib
import csv
import dbm.dumb
import json
import logging
import mmap
import os
import pickle
import shutil
import socket
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import traceback
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

Way = Callable[[], object]
NATIVE = {"a_shell_writes", "a_shell_removes_and_makes", "a_fifo_is_made"}
"""What no audit hook of Python sees."""


LONG = "l" * 255
"""No name is longer."""


def prepare(folder: Path) -> None:
    """What stands in each folder before."""
    (folder / "tree" / "deep").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "best.pt").write_bytes(b"weights" * 1000)
    (folder / "last.pt").write_bytes(b"last" * 1000)
    (folder / "history.csv").write_text("epoch,loss\n1,0.5\n")
    (folder / "config.json").write_text('{"lr": 0.1}')
    (folder / "tree" / "one.txt").write_text("one")
    (folder / "tree" / "deep" / "two.txt").write_text("two")
    (folder / "link.pt").symlink_to("best.pt")
    (folder / "folder-link").symlink_to("tree")
    (folder / "twin-a").write_text("twins")
    os.link(folder / "twin-a", folder / "twin-b")
    (folder / "private.txt").write_text("secret")
    (folder / "private.txt").chmod(0o600)
    (folder / LONG).write_text("long")
    with sqlite3.connect(folder / "runs.db") as database:
        database.execute("create table runs (name text)")
        database.execute("insert into runs values ('first')")
    database.close()
    for number, path in enumerate([*folder.rglob("*"), folder]):
        if not path.is_symlink():
            os.utime(path, ns=(10**18 + number, 10**18 + 12345 + number))


def open_w() -> None:
    Path("best.pt").write_bytes(b"new")


def open_w_of_a_new_file() -> None:
    Path("new.pt").write_bytes(b"new")


def open_a() -> None:
    with open("history.csv", "a") as file:
        csv.writer(file).writerow([2, 0.4])


def open_a_and_truncate() -> None:
    with open("best.pt", "a") as file:
        file.write("more")
        file.truncate(3)
    with open("history.csv", "ab", 0) as unbuffered:
        unbuffered.truncate(0)
        unbuffered.write(b"anew")
    with open("config.json", "a") as file:
        os.ftruncate(file.fileno(), 0)
    with open("twin-a", "a") as file:
        file.truncate(0)


def what_fails() -> None:
    """Its tracebacks show no frame of the recorder."""
    with open("best.pt", "rb", 0) as file:
        fails = (
            partial(os.rename, "none", "new"),
            partial(os.replace, "none", "new"),
            partial(file.truncate, 1),
        )
        for call in fails:
            try:
                call()
            except OSError:
                text = traceback.format_exc()
            assert "recorder" not in text, text


def open_a_and_replace() -> None:
    with open("best.pt", "a") as file:
        file.write("more")
        os.replace("last.pt", "best.pt")
        file.write("still the old one")


def open_a_then_in_the_middle() -> None:
    with open("best.pt", "a") as file:
        file.write("more")
    with open("best.pt", "r+b") as read:
        read.write(b"middle")
    with open("last.pt", "ab") as file:
        file.write(b"more")
    with open("last.pt", "r+b") as read, mmap.mmap(read.fileno(), 0) as mapped:
        mapped[:4] = b"mmap"


def open_a_of_a_new_file() -> None:
    with open("new.csv", "a") as file:
        file.write("1\n")


def open_r_plus() -> None:
    with open("best.pt", "r+b") as file:
        file.seek(10)
        file.write(b"changed")


def open_w_plus() -> None:
    with open("config.json", "w+") as file:
        file.write("{}")


def open_a_plus() -> None:
    with open("config.json", "a+") as file:
        file.write(" ")


def open_x() -> None:
    with open("new.txt", "x") as file:
        file.write("x")


def open_x_where_it_is() -> None:
    try:
        open("best.pt", "x").close()
    except FileExistsError:
        return
    raise AssertionError


def os_open_and_truncate() -> None:
    number = os.open("best.pt", os.O_WRONLY | os.O_TRUNC)
    os.write(number, b"less")
    os.close(number)


def os_open_and_append() -> None:
    number = os.open("best.pt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(number, b"more")
    os.close(number)


def os_replace() -> None:
    Path("best.tmp").write_bytes(b"new")
    os.replace("best.tmp", "best.pt")


def os_rename_over_another() -> None:
    os.rename("last.pt", "best.pt")


def last_becomes_previous() -> None:
    os.rename("last.pt", "previous.pt")
    Path("last.pt").write_bytes(b"new")
    with open("previous.pt", "ab") as file:
        file.write(b"and more")


def os_remove() -> None:
    os.remove("best.pt")


def remove_and_write() -> None:
    os.remove("best.pt")
    Path("best.pt").write_bytes(b"new")


def rmtree() -> None:
    shutil.rmtree("tree")


def rmtree_and_make_again() -> None:
    shutil.rmtree("tree")
    os.makedirs("tree/deep")
    Path("tree/deep/two.txt").write_text("another")
    Path("tree/three.txt").write_text("three")


def a_tree_becomes_a_file() -> None:
    shutil.rmtree("tree")
    Path("tree").write_text("file")


def makedirs() -> None:
    os.makedirs("runs/a/b/c")
    Path("runs/a/b/c/log.txt").write_text("log")


def rmdir() -> None:
    os.rmdir("empty")


def a_file_in_an_old_folder() -> None:
    Path("tree/deep/new.txt").write_text("new")


def by_descriptors_that_only_read() -> None:
    number = os.open("best.pt", os.O_RDONLY)
    os.fchmod(number, 0o600)
    os.utime(number, (1, 1))
    with contextlib.suppress(OSError):  # a user may not
        os.fchown(number, 12, 12)
        os.chown("config.json", 12, 12)
        os.chown("tree", 12, 12)
    os.close(number)


def the_time_of_a_symbolic_link() -> None:
    os.utime("link.pt", (1, 1), follow_symlinks=False)


def a_mode_in_an_open_folder() -> None:
    number = os.open("tree", os.O_RDONLY)
    os.chmod("one.txt", 0o600, dir_fd=number)
    os.utime("one.txt", (1, 1), dir_fd=number)
    os.close(number)


def the_longest_name() -> None:
    Path(LONG).write_text("changed")
    Path("n" * 255).write_text("new")


def both_of_two_names_go() -> None:
    os.remove("twin-a")
    os.remove("twin-b")


def one_of_two_names_is_replaced() -> None:
    Path("new.tmp").write_text("new")
    os.replace("new.tmp", "twin-a")
    with open("twin-b", "a") as file:
        file.write("more")


def two_names_change_their_files() -> None:
    os.rename("twin-a", "tmp")
    os.rename("config.json", "twin-a")
    os.rename("tmp", "config.json")
    Path("config.json").write_text("one of twins")


def a_socket() -> None:
    server = socket.socket(socket.AF_UNIX)
    server.bind("server")
    server.close()


def truncate() -> None:
    os.truncate("best.pt", 3)


def ftruncate() -> None:
    with open("best.pt", "r+b") as file:
        file.truncate(3)


def chmod() -> None:
    os.chmod("private.txt", 0o644)
    os.chmod("tree", 0o700)


def utime() -> None:
    os.utime("best.pt", (1, 1))
    Path("config.json").touch()


def a_symbolic_link() -> None:
    os.symlink("best.pt", "latest")


def write_through_a_symbolic_link() -> None:
    Path("link.pt").write_bytes(b"through")


def replace_a_symbolic_link() -> None:
    os.symlink("last.pt", "link.tmp")
    os.replace("link.tmp", "link.pt")


def write_below_a_linked_folder() -> None:
    Path("folder-link/one.txt").write_text("changed")
    Path("folder-link/new.txt").write_text("new")


def a_hard_link() -> None:
    os.link("best.pt", "copy.pt")
    with open("copy.pt", "ab") as file:
        file.write(b"more")


def write_to_one_of_two_names() -> None:
    Path("twin-a").write_text("both")
    assert Path("twin-b").read_text() == "both"


def copy_over() -> None:
    shutil.copy2("last.pt", "best.pt")


def move_over() -> None:
    shutil.move("last.pt", "tree/last.pt")


def copytree() -> None:
    shutil.copytree("tree", "tree-copy")


def rename_a_folder() -> None:
    os.rename("tree", "old-tree")


def rename_a_folder_and_write() -> None:
    Path("tree/one.txt").write_text("before")
    os.rename("tree", "old-tree")
    Path("old-tree/deep/two.txt").write_text("after")
    os.mkdir("tree")
    Path("tree/one.txt").write_text("again")
    os.rename("old-tree", "oldest-tree")


def a_new_database() -> None:
    with sqlite3.connect("new.db") as database:
        database.execute("create table runs (name text)")
    database.close()


def a_row_of_a_database() -> None:
    with sqlite3.connect("runs.db") as database:
        database.execute("pragma journal_mode=wal")
        database.execute("insert into runs values ('second')")
    database.close()


def a_database_by_its_address() -> None:
    with sqlite3.connect(f"file:{Path.cwd()}/runs.db?mode=rwc", uri=True) as database:
        database.execute("insert into runs values ('third')")
    database.close()


def pickled() -> None:
    with open("best.pt", "wb") as file:
        pickle.dump({"a": 1}, file)


def json_in_place() -> None:
    with open("config.json", "r+") as file:
        values = json.load(file)
        file.seek(0)
        file.truncate()
        json.dump({**values, "epoch": 3}, file)


def archives() -> None:
    with zipfile.ZipFile("all.zip", "w") as archive:
        archive.write("best.pt")
    with tarfile.open("all.tar", "w") as archive:
        archive.add("tree")
    with tarfile.open("all.tar") as archive:
        archive.extractall("extracted", filter="data")


def a_log_handler() -> None:
    handler = logging.FileHandler("history.csv")
    handler.emit(logging.makeLogRecord({"msg": "line"}))
    handler.close()


def a_dbm() -> None:
    with dbm.dumb.open("cache", "c") as values:
        values["a"] = "b"


def a_memory_map() -> None:
    with open("best.pt", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[:4] = b"mmap"


def temporary_files() -> None:
    with tempfile.NamedTemporaryFile(dir=".") as file:
        file.write(b"x")
    tempfile.mkdtemp(dir=".")


def by_folder_descriptors() -> None:
    number = os.open("tree", os.O_RDONLY)
    os.remove("one.txt", dir_fd=number)
    os.mkdir("made", dir_fd=number)
    os.rename("deep", "deeper", src_dir_fd=number, dst_dir_fd=number)
    os.close(number)


def bytes_as_paths() -> None:
    with open(b"best.pt", "wb") as file:
        file.write(b"new")
    os.remove(b"last.pt")


def from_another_folder() -> None:
    os.chdir("tree")
    Path("../best.pt").write_bytes(b"new")
    os.remove("deep/two.txt")
    os.chdir("..")


def several_processes_write_one_file() -> None:
    children = []
    for number in range(4):
        pid = os.fork()
        if pid == 0:
            Path("best.pt").write_bytes(b"%d" % number)
            with open("history.csv", "a") as file:
                file.write(f"{number}\n")
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)


def a_python_child_writes() -> None:
    program = "open('best.pt', 'w').write('child'); import shutil; shutil.rmtree('tree')"
    subprocess.run([sys.executable, "-c", program], check=True)


def a_shell_writes() -> None:
    subprocess.run(["sh", "-c", "echo f > best.pt; echo g > new.txt"], check=True)


def a_shell_removes_and_makes() -> None:
    subprocess.run(["sh", "-c", "rm -r tree; mkdir tree; echo f > tree/f; chmod 700 ."], check=True)


def a_fifo_is_made() -> None:
    os.mkfifo("fifo")


WAYS: dict[str, Way] = {
    name: way
    for name, way in globals().items()
    if callable(way) and getattr(way, "__module__", "") == __name__ and name not in ("prepare", "main")
}


def main(folder: Path, names: list[str]) -> None:
    """Write in each way, in a folder of its own."""
    for name in names or WAYS:
        os.chdir(folder / name)
        WAYS[name]()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
