"""The script that takes the pictures of the page about viewers."""

import pytest

import gen_viewer_pictures


@pytest.mark.nightly
@pytest.mark.skipif(bool(gen_viewer_pictures.missing()), reason=f"needs {gen_viewer_pictures.missing()}")
def test_pictures(tmp_path):
    pictures = gen_viewer_pictures.take(tmp_path)
    assert [picture.name for picture in pictures] == ["viewers-model-explorer.png", "viewers-tlparse.png"]
    for picture in pictures:
        assert (gen_viewer_pictures.FOLDER / picture.name).is_file()
        content = picture.read_bytes()
        assert content.startswith(b"\x89PNG") and len(content) > 20_000
