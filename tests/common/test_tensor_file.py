"""Files: what was written comes back, and nothing that was cut, edited or half written does."""

import json
import os
import re
import stat
import struct
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from xcebra.common.tensor_file import FORMAT_VERSION, read_tensors, under, write_tensors

KIND = "a-kind"
HEADER = {"steps": 60, "names": ["a", "b"], "rate": 1e-3, "nested": {"on": True, "of": None}}


def tensors():
    return {
        "weights/a": torch.arange(6, dtype=torch.float32).reshape(2, 3),
        "weights/b": torch.tensor([1e-300, -0.0, float("nan")], dtype=torch.float64),
        "step": torch.tensor(7, dtype=torch.int64),
        "bytes": torch.tensor([0, 255], dtype=torch.uint8),
        "nothing": torch.empty(0, 4),
    }


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.safetensors"
    write_tensors(path, KIND, tensors(), HEADER)
    return path


def edit(path, name="__metadata__", **changes):
    """Change the file's own header, as an editor would: the rest stays, and stays valid."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    changed = header[name] | changes
    header[name] = {key: value for key, value in changed.items() if value is not None}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])


def metadata(path):
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8 : 8 + length])["__metadata__"]


def assert_intact(path):
    found, header = read_tensors(path, KIND)
    assert header == HEADER
    assert found.keys() == tensors().keys()
    for name, value in tensors().items():
        assert found[name].dtype == value.dtype
        assert found[name].shape == value.shape
        assert found[name].numpy().tobytes() == value.numpy().tobytes()


def test_tensors_and_header_come_back_bit_for_bit(path):
    assert_intact(path)


def test_a_path_may_be_a_string_or_have_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_tensors("plain", KIND, tensors(), HEADER)
    assert_intact("plain")


def test_views_and_tensors_with_a_gradient_are_written_as_they_look(tmp_path):
    base = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    learned = base.clone().requires_grad_()
    write_tensors(tmp_path / "x", KIND, {"view": base.T, "learned": learned}, {})
    found, _ = read_tensors(tmp_path / "x", KIND)
    assert torch.equal(found["view"], base.T)
    assert torch.equal(found["learned"], base)
    assert learned.requires_grad


def test_the_same_content_gives_the_same_digest_whatever_its_order(tmp_path, path):
    turned = dict(reversed(tensors().items())), dict(reversed(HEADER.items()))
    write_tensors(tmp_path / "again", KIND, *turned)
    assert metadata(tmp_path / "again")["sha256"] == metadata(path)["sha256"]


def test_writing_replaces_an_older_file(path):
    write_tensors(path, KIND, {"x": torch.ones(2)}, {"new": 1})
    found, header = read_tensors(path, KIND)
    assert (list(found), header) == (["x"], {"new": 1})


def test_a_new_file_can_be_read_by_whom_the_umask_allows(path):
    """As any other file this process writes: a model saved for a group can be read by it."""
    plain = path.with_name("plain")
    plain.write_bytes(b"")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_under_takes_a_prefix_off():
    assert list(under(tensors(), "weights/")) == ["a", "b"]


# Damage


def test_a_file_cut_short_anywhere_is_refused_by_name(path):
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=re.escape(str(path))):
            read_tensors(path, KIND)


def test_bytes_added_at_the_end_are_refused(path):
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(ValueError, match=re.escape(str(path))):
        read_tensors(path, KIND)


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_one_byte_changed_anywhere_is_refused_by_name(path, mask):
    whole = bytearray(path.read_bytes())
    for at in range(len(whole)):
        whole[at] ^= mask
        path.write_bytes(whole)
        with pytest.raises(ValueError, match=re.escape(str(path))):
            read_tensors(path, KIND)
        whole[at] ^= mask


def test_a_changed_byte_in_the_data_is_told_by_the_digest(path):
    whole = bytearray(path.read_bytes())
    whole[-3] ^= 0x10
    path.write_bytes(whole)
    with pytest.raises(ValueError, match=r"does not match its own digest.*restore a copy"):
        read_tensors(path, KIND)


def test_settings_edited_under_the_same_digest_are_refused(path):
    edit(path, header=json.dumps(HEADER | {"steps": 61}))
    with pytest.raises(ValueError, match=r"does not match its own digest.*edited or damaged"):
        read_tensors(path, KIND)


@pytest.mark.parametrize("changes", [{"dtype": "I32"}, {"shape": [3, 2]}, {"shape": [6]}])
def test_the_same_bytes_under_another_type_or_shape_are_refused(path, changes):
    edit(path, "weights/a", **changes)
    with pytest.raises(ValueError, match="does not match its own digest"):
        read_tensors(path, KIND)


@pytest.mark.parametrize("missing", ["header", "sha256"])
def test_a_file_without_header_or_digest_is_refused(path, missing):
    edit(path, **{missing: None})
    with pytest.raises(ValueError, match="does not match its own digest"):
        read_tensors(path, KIND)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "another"}, "holds 'another', expected 'a-kind'"),
        ({"kind": None}, "holds None, expected 'a-kind'"),
        ({"format_version": str(FORMAT_VERSION + 1)}, f"format version {FORMAT_VERSION + 1}.*inst"),
        ({"format_version": None}, "format version"),
    ],
)
def test_another_kind_or_version_is_refused_by_name(path, changes, message):
    edit(path, **changes)
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}.*{message}"):
        read_tensors(path, KIND)


def test_a_kind_changed_to_the_one_asked_for_is_still_refused(path):
    edit(path, kind="another")
    with pytest.raises(ValueError, match="does not match its own digest"):
        read_tensors(path, "another")


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x80\x04N.", b"\xff" * 64])
def test_something_else_is_refused_by_name(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / "x"))):
        read_tensors(tmp_path / "x", KIND)


def test_a_safetensors_file_of_another_program_is_refused(tmp_path):
    save_file({"x": torch.ones(2)}, tmp_path / "x")
    with pytest.raises(ValueError, match="holds None, expected 'a-kind'"):
        read_tensors(tmp_path / "x", KIND)


def test_a_missing_file_and_a_folder_are_not_files(tmp_path):
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(FileNotFoundError, match=f"no file {str(path)!r}"):
            read_tensors(path, KIND)


# Writing that fails


def test_a_missing_folder_is_named(tmp_path):
    path = tmp_path / "no" / "model"
    with pytest.raises(FileNotFoundError, match=f"cannot write {str(path)!r}.*no folder"):
        write_tensors(path, KIND, tensors(), HEADER)
    assert os.listdir(tmp_path) == []


def full_disk(*arguments):
    raise OSError("no space left on device")


@pytest.mark.parametrize("fails", ["replace", "fsync"])
@pytest.mark.parametrize("older", [True, False])
def test_nothing_is_left_when_the_disk_fails_and_the_older_file_stays(
    path, monkeypatch, fails, older
):
    if not older:
        path.unlink()
    monkeypatch.setattr(os, fails, full_disk)
    with pytest.raises(OSError, match="no space left"):
        write_tensors(path, KIND, {"x": torch.ones(2)}, {})
    monkeypatch.undo()
    assert os.listdir(path.parent) == [path.name] * older
    if older:
        assert_intact(path)


@pytest.mark.parametrize(
    ("content", "header", "error"),
    [
        ({"x": torch.ones(2)}, {"bad": np.arange(3)}, TypeError),
        ({"x": torch.ones(2)}, {"bad": {1, 2}}, TypeError),
        ({"x": [1, 2]}, {}, AttributeError),
    ],
)
def test_nothing_is_left_when_the_content_cannot_be_written(path, content, header, error):
    with pytest.raises(error):
        write_tensors(path, KIND, content, header)
    assert os.listdir(path.parent) == [path.name]
    assert_intact(path)


def test_ctrl_c_while_writing_leaves_nothing(path, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_tensors(path, KIND, {"x": torch.ones(2)}, {})
    assert os.listdir(path.parent) == [path.name]
    assert_intact(path)


# Replaces a file by one of two others in turn, until it is told to end.
REPLACE = """
import os, sys
path, *others = sys.argv[1:]
while True:
    for other in others:
        os.link(other, path + ".new")
        os.replace(path + ".new", path)
"""


def test_a_file_replaced_while_it_is_read_comes_back_whole_old_or_new(path):
    """Header and data must be of one file: the path may name another a moment later."""
    others = [path.with_name(name) for name in "ab"]
    for i, other in enumerate(others):
        write_tensors(other, KIND, {"x": torch.full((1_000,), float(i))}, {"i": i})
    path.unlink()
    with subprocess.Popen([sys.executable, "-c", REPLACE, path, *others]) as writer:
        try:
            while not path.exists():
                assert writer.poll() is None
            for _ in range(1_000):
                found, header = read_tensors(path, KIND)
                assert (found["x"] == header["i"]).all()
        finally:
            writer.kill()


def test_the_header_says_kind_version_and_digest_in_plain_text(path):
    told = metadata(path)
    assert told["kind"] == KIND
    assert told["format_version"] == str(FORMAT_VERSION)
    assert json.loads(told["header"]) == HEADER
    assert len(told["sha256"]) == 64
