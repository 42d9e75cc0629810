"""Recordings in archives of packages: downloaded once, checked, and kept."""

import hashlib
import io
import shutil
import tarfile
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from xcebra.datasets.package_archives import Member, PackageArchive, fetch

DATA = b"a recording" * 100
PATH = "pack-1.0/tests/session.nwb"


def tar_of(path, **files):
    """An archive with one file, and perhaps others that should not be touched."""
    with tarfile.open(path, "w:gz") as tar:
        for name, data in {"pack-1.0/README": b"read me", **files}.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def known(path, members=None):
    """What is known of an archive: all that is in the source code of a real one."""
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    members = members or (Member(PATH, hashlib.sha256(DATA).hexdigest(), len(DATA)),)
    return PackageArchive("pack", path.name, digest, len(data), members, "pip download pack==1.0")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def index(tmp_path, monkeypatch):
    """An index of packages on this machine; its folder."""
    folder = tmp_path / "index"
    (folder / "simple" / "pack").mkdir(parents=True)
    (folder / "files").mkdir()
    (folder / "simple" / "pack" / "index.html").write_text(
        '<a href="../../files/pack-0.9.tar.gz#sha256=0">pack-0.9.tar.gz</a>'
        '<a href="../../files/pack-1.0.tar.gz#sha256=0">pack-1.0.tar.gz</a>'
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("XCEBRA_CACHE", str(tmp_path / "cache"))
    yield folder
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def wanted(index):
    path = index / "files" / "pack-1.0.tar.gz"
    tar_of(path, **{PATH: DATA})
    return known(path)


@pytest.fixture
def no_network(monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")


def kept_files(tmp_path):
    return sorted(p.relative_to(tmp_path / "cache") for p in (tmp_path / "cache").rglob("*.*"))


def test_it_is_downloaded_once_and_needs_no_network_afterwards(wanted, tmp_path, monkeypatch):
    lines = []
    (path,) = fetch(wanted, on_download=lines.append).values()
    assert path.read_bytes() == DATA
    assert lines == ["downloading pack-1.0.tar.gz, 0 MB, from PyPI"]
    assert [str(p) for p in kept_files(tmp_path)] == ["pack-1.0", "pack-1.0/session.nwb"]
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    assert fetch(wanted, on_download=lines.append) == {"session.nwb": path}
    assert len(lines) == 1


def test_a_damaged_copy_is_replaced(wanted):
    (path,) = fetch(wanted).values()
    for damaged in (b"short", b"x" * len(DATA)):
        path.write_bytes(damaged)
        assert fetch(wanted)["session.nwb"].read_bytes() == DATA


def test_without_a_network_the_message_says_what_to_do(wanted, no_network, tmp_path):
    with pytest.raises(ConnectionError, match=r"pack-1.0.tar.gz could not.*pip download pack==1.0"):
        fetch(wanted)
    assert [str(p) for p in kept_files(tmp_path)] == ["pack-1.0"]


def test_an_archive_on_disk_needs_no_network(wanted, index, no_network, tmp_path):
    copy = tmp_path / "renamed.tgz"
    shutil.copy(index / "files" / wanted.file, copy)
    (path,) = fetch(wanted, archive=copy).values()
    assert path.read_bytes() == DATA


def test_another_archive_is_refused(wanted, tmp_path):
    other = tmp_path / "pack-1.0.tar.gz"
    tar_of(other, **{PATH: DATA, "pack-1.0/more": b"more"})
    with pytest.raises(ValueError, match=r"archive=.*is not pack-1.0.tar.gz.*pip download"):
        fetch(wanted, archive=other)
    with pytest.raises(FileNotFoundError, match=r"no file.*nowhere.*pip download"):
        fetch(wanted, archive=tmp_path / "nowhere.tar.gz")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data[:-20], r"only .* of its .* bytes arrived"),
        (lambda data: data + b"more", "more than its .* bytes arrived"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "has the digest .*, not "),
    ],
    ids=["truncated", "longer", "changed"],
)
def test_a_download_that_is_not_the_archive_leaves_nothing(wanted, index, tmp_path, change, words):
    path = index / "files" / wanted.file
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ConnectionError, match=words):
        fetch(wanted)
    assert [str(p) for p in kept_files(tmp_path)] == ["pack-1.0"]


def test_a_connection_that_breaks_is_told(wanted, monkeypatch):
    def send_less(self):
        self.send_response(200)
        self.send_header("Content-Length", "100000")
        self.end_headers()
        self.wfile.write(b"<a href='x'>")

    monkeypatch.setattr(Quiet, "do_GET", send_less)
    with pytest.raises(ConnectionError, match="could not be downloaded"):
        fetch(wanted)


def test_an_index_without_the_archive_is_told(wanted, index, monkeypatch):
    (index / "simple" / "pack" / "index.html").write_text("<a href='pack-2.0.tar.gz'>")
    with pytest.raises(ConnectionError, match="does not list it"):
        fetch(wanted)
    (index / "simple" / "pack" / "index.html").unlink()
    (index / "simple" / "pack").rmdir()
    with pytest.raises(ConnectionError, match="HTTP Error 404"):
        fetch(wanted)
    for address in ("file:///etc/", "https://name:word@host:port/simple"):
        monkeypatch.setenv("PIP_INDEX_URL", address)
        with pytest.raises(ConnectionError, match="could not be downloaded"):
            fetch(wanted)


def test_only_the_file_itself_is_extracted(tmp_path):
    """Not a link of its name, not one of another size, and nothing beside it."""
    path = tmp_path / "pack-1.0.tar.gz"
    secret = tmp_path / "secret"
    secret.write_bytes(DATA)
    with tarfile.open(path, "w:gz") as tar:
        link = tarfile.TarInfo(PATH)
        link.type, link.linkname = tarfile.SYMTYPE, str(secret)
        tar.addfile(link)
    with pytest.raises(ValueError, match="does not contain"):
        fetch(known(path), archive=path, cache=tmp_path / "cache")
    tar_of(path, **{PATH: DATA * 50})
    with pytest.raises(ValueError, match="another file than was published"):
        fetch(known(path), archive=path, cache=tmp_path / "cache")
    tar_of(path, **{"../escaped": b"out", "/tmp/escaped": b"out", PATH: DATA})
    fetch(known(path), archive=path, cache=tmp_path / "cache")
    assert not list(tmp_path.rglob("escaped"))


def test_a_member_that_is_missing_or_an_archive_that_is_none_is_told(tmp_path):
    path = tmp_path / "pack-1.0.tar.gz"
    tar_of(path)
    with pytest.raises(ValueError, match=r"does not contain 'pack-1.0/tests/session.nwb'"):
        fetch(known(path), archive=path, cache=tmp_path / "cache")
    path.write_bytes(b"no archive")
    with pytest.raises(ValueError, match="is damaged"):
        fetch(known(path), archive=path, cache=tmp_path / "cache")


def test_wheels_are_read_too_all_files_or_none(tmp_path):
    path = tmp_path / "pack-1.0-py3-none-any.whl"
    members = [
        Member(f"pack/{name}", hashlib.sha256(DATA).hexdigest(), len(DATA)) for name in ("a", "b")
    ]
    for names in (["a"], ["a", "b"]):
        with zipfile.ZipFile(path, "w") as zipped:
            for name in names:
                zipped.writestr(f"pack/{name}", DATA)
        if names == ["a"]:
            with pytest.raises(ValueError, match="does not contain 'pack/b'"):
                fetch(known(path, tuple(members)), archive=path, cache=tmp_path / "cache")
            assert not list((tmp_path / "cache" / path.stem).iterdir())
    found = fetch(known(path, tuple(members)), archive=path, cache=tmp_path / "cache")
    assert [p.read_bytes() for p in found.values()] == [DATA, DATA]
    path.write_bytes(b"no archive")
    found["a"].unlink()
    with pytest.raises(ValueError, match="is damaged"):
        fetch(known(path, tuple(members)), archive=path, cache=tmp_path / "cache")


def test_a_cache_that_cannot_be_written_is_told(wanted, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="cannot be written, and downloaded recordings are kept"):
        fetch(wanted, cache=tmp_path / "file" / "cache")


@pytest.mark.parametrize(
    ("platform", "variable", "folder"),
    [
        ("linux", None, ".cache/xcebra"),
        ("linux", "XDG_CACHE_HOME", "own/xcebra"),
        ("darwin", None, "Library/Caches/xcebra"),
        ("win32", "LOCALAPPDATA", "own/xcebra"),
        ("win32", None, "AppData/Local/xcebra"),
    ],
)
def test_the_cache_is_where_the_system_keeps_caches(
    platform, variable, folder, tmp_path, monkeypatch
):
    from xcebra.datasets.cache import cache_folder

    for name in ("XCEBRA_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "own"))
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    monkeypatch.setattr("sys.platform", platform)
    assert cache_folder(what="files") == tmp_path / folder
