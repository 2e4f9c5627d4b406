"""What a script downloads into its own folders stays, and nothing else does, whatever else came over the network."""

import functools
import gzip
import io
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import pytest

from tests.untouched import downloads
from tests.untouched.support import MODES, run, state, why_not

pytestmark = pytest.mark.slow
SCRIPT = Path(downloads.__file__)


def _archives() -> dict[str, bytes]:
    tar, packed = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w:gz") as archive:
        member = tarfile.TarInfo("images/one.bin")
        member.size = len(downloads.DATA)
        archive.addfile(member, io.BytesIO(downloads.DATA))
    with zipfile.ZipFile(packed, "w") as other:
        other.writestr("images/two.bin", downloads.DATA)
    return {"/data.tgz": tar.getvalue(), "/data.zip": packed.getvalue()}


_OF_HUGGING_FACE = {"ETag": '"1234"', "X-Repo-Commit": "0" * 40}


class _Server(BaseHTTPRequestHandler):
    """Answers what is asked for, and keeps what is put."""

    files: ClassVar = {
        "/data.bin": downloads.DATA,
        "/someone/model/resolve/main/weights.bin": downloads.DATA,
        **_archives(),
    }

    def do_HEAD(self) -> bytes:
        path, _, how = self.path.partition("?")
        body = self.files[path]
        self.send_response(200)
        for name, value in _OF_HUGGING_FACE.items():
            self.send_header(name, value)
        if how == "gzip":
            body = gzip.compress(body)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body) + (how == "cut")))
        self.end_headers()
        return body

    def do_GET(self) -> None:
        self.wfile.write(self.do_HEAD())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.files[self.path] = body
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _InChunks(_Server):
    """The same in chunks."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        body = self.files[self.path.partition("?")[0]]
        for begin in range(0, len(body), 700):
            piece = body[begin : begin + 700]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")


@pytest.fixture
def servers() -> Iterator[tuple[str, str]]:
    """The addresses of both."""
    started = [ThreadingHTTPServer(("127.0.0.1", 0), kind) for kind in (_Server, _InChunks)]
    for server in started:
        threading.Thread(target=functools.partial(server.serve_forever, 0.05), daemon=True).start()
    one, other = (f"http://127.0.0.1:{server.server_port}" for server in started)
    yield one, other
    for server in started:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("mode", MODES)
def test_downloads_stay_and_nothing_else(mode: str, tmp_path: Path, servers: tuple[str, str]) -> None:
    if reason := why_not(mode):
        pytest.skip(reason)
    working = tmp_path / "project"
    working.mkdir()
    (working / "existing.bin").write_bytes(b"earlier")
    (working / "best.pt").write_bytes(b"weights")
    before = state(working)
    names = [name for name, (module, _, _) in downloads.WAYS.items() if find_spec(module)]
    trace = run(mode, working, tmp_path / "run", sys.executable, str(SCRIPT), *servers, *names)
    assert trace.status == 0, trace.log
    assert trace.written is not None
    kept = {str(Path(file.path).relative_to(working)) for file in trace.written.files if file.downloaded}
    assert trace.written.left == ()
    expected = {file for name in names for file in downloads.WAYS[name][1]}
    assert kept == expected
    after = state(working)
    assert {path for path in after if (working / path).is_file()} == {*before, *expected} - {"."}
    for path in before.keys() - {"."}:
        assert after[path] == before[path]
    for path in expected:
        assert downloads.DATA in (working / path).read_bytes() or path.startswith("archive/")
