"""The script that takes the pictures of the page about viewers."""

import pytest

import gen_viewer_pictures
from viewer_subjects import SUBJECTS

NAMES = [f"{name}-{viewer}.png" for name in SUBJECTS for viewer in gen_viewer_pictures.VIEWERS]


def test_the_page_shows_all_pictures():
    page = (gen_viewer_pictures.FOLDER.parent / "viewer-pictures.md").read_text(encoding="utf-8")
    for name in NAMES:
        assert f"](pictures/{name})" in page
        assert (gen_viewer_pictures.FOLDER / name).is_file()


# CI runs the script itself, for all programs.
@pytest.mark.nightly
@pytest.mark.skipif(bool(gen_viewer_pictures.missing()), reason=f"needs {gen_viewer_pictures.missing()}")
def test_pictures(tmp_path):
    pictures = gen_viewer_pictures.take(tmp_path, ["early-exit"])
    assert [picture.name for picture in pictures] == [name for name in NAMES if name.startswith("early-exit")]
    for picture in pictures:
        content = picture.read_bytes()
        assert content.startswith(b"\x89PNG") and len(content) > 20_000
