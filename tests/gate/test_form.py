"""Forms: the fields that are looked for, and the spellings that one parser would read in another way than the next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.errors import RequestRefused
from gate.form import FIELD_BYTES_MAX, PARTS_MAX, WINDOW_BYTES, Field, boundary_of, scan_form
from gate.steps import finished
from tests.doubles import mapped

CUT = b"cut"


def part(name: str, value: bytes, *lines: bytes, more: str = "") -> bytes:
    """One part, less its delimiters."""
    disposition = f'Content-Disposition: form-data; name="{name}"{more}'.encode()
    return b"\r\n".join([disposition, *lines, b"", value])


def form(*parts: bytes) -> bytes:
    """A whole form."""
    return b"".join(b"--cut\r\n" + each + b"\r\n" for each in parts) + b"--cut--\r\n"


def found(body: bytes) -> list[Field]:
    """The fields `model` and `stream`."""
    return finished(scan_form(body, CUT, {"model", "stream"}))


def refused(body: bytes) -> tuple[int, str, str | None]:
    """How it is refused."""
    with pytest.raises(RequestRefused) as caught:
        found(body)
    return caught.value.http_status, caught.value.public_code, caught.value.param


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        (b"multipart/form-data; boundary=cut", CUT), (b'Multipart/Form-Data;boundary="c u t"', b"c u t"), (b" multipart/form-data; charset=utf-8; boundary=cut ", CUT),
        (b"multipart/form-data; boundary=cut; charset=utf-8", CUT), (b"multipart/form-data", None), (b"multipart/form-data; boundary=", None),
        (b"multipart/form-data; boundary=a; boundary=b", None), (b"multipart/form-data; boundary=" + b"x" * 71, None), (b"multipart/mixed; boundary=cut", None),
        (b'multipart/form-data; x="boundary=a"; boundary=b', None), (b"multipart/form-data; boundary=a b", None),
    ],
)  # fmt: skip
def test_the_boundary_is_the_one_that_is_sure(content_type: bytes, boundary: bytes | None) -> None:
    """Quoted or not; none where two are named, or where it is no type of a form."""
    assert boundary_of(content_type) == boundary


def test_fields_are_found_with_their_places() -> None:
    """Before, between and behind files, which are passed over."""
    file = part("file", b"\0\r\n--cu\r\n\r\n--", b"Content-Type: x/y", more='; filename="model"')
    body = form(file, part("model", b"small"), file, part("stream", b"", b"content-transfer-encoding: 8bit"), part("other", b"\xff"))  # fmt: skip
    fields = found(body)
    assert [(each.name, each.text) for each in fields] == [("model", "small"), ("stream", "")]
    assert [body[each.start : each.end] for each in fields] == [b"small", b""]
    assert found(b"--cut--") == []
    bare = b"--cut\r\ncontent-disposition:form-data;name=model\r\n\r\nsmall\r\n--cut--"
    assert [each.text for each in found(bare)] == ["small"]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"x", b"--cut", b"--cut\r\n", b"--cut\n" + part("a", b"") + b"\r\n--cut--", b"\r\n" + form(part("a", b"")), b"preamble\r\n" + form(part("a", b"")),
        form(part("a", b""))[:-6], form(part("a", b"")) + b"epilogue", form(part("a", b"x\n--cut\ny")), form(part("a", b"x--cut")), form(part("a", b"\r\n--cut \r\n")),
        form(b"no head"), form(b"\r\n\r\nno name"), form(b"content-type: x\r\n\r\n"), form(b'content-disposition: form-data; name="a"\nx: y\r\n\r\n'),
        form(b'content-disposition: form-data; name="a"\r\n folded\r\n\r\n'), form(b"content-disposition : form-data\r\n\r\n"), form(b"content-disposition: attachment; name=a\r\n\r\n"),
        form(b"content-disposition: form-data\r\n\r\n"), form(part("a", b"", more='; name="model"')), form(part("a", b"", more="; name*=utf-8''model")), form(part("a", b"", more="; x=\"")),
        form(part('mo\\"del', b"")), form(part("mod%65l", b"")), form(part("a", b"", b'content-disposition: form-data; name="model"')), form(part("a", b"", b"x: " + b"y" * 9_000)),
        b"--cut\r\n--cut--\r\n", form(*[part("a", b"")] * PARTS_MAX),
    ],
)  # fmt: skip
def test_what_is_no_form_for_everybody_is_refused(body: bytes) -> None:
    """Delimiters that stand elsewhere than at a line's beginning, heads that break the rules, names given twice or in another alphabet, and forms without an end."""
    assert refused(body) == (400, "invalid_form", None)


@pytest.mark.parametrize(
    ("value", "lines", "more"),
    [
        (b"small", (), '; filename="a"'), (b"small", (), "; filename*=utf-8''a"), (b"c21hbGw=", (b"content-transfer-encoding: base64",), ""), (b"\xff", (), ""),
        (b"x" * (FIELD_BYTES_MAX + 1), (), ""),
    ],
)  # fmt: skip
def test_a_field_that_is_no_plain_text_is_refused(
    value: bytes, lines: tuple[bytes, ...], more: str
) -> None:
    """A file under that name, an encoded one, one that is not UTF-8, one that is too long."""
    assert refused(form(part("model", value, *lines, more=more))) == (400, "invalid_value", "model")


def test_a_field_that_stands_twice_is_refused() -> None:
    """One parser takes the first, another the last."""
    body = form(part("model", b"a"), part("file", b""), part("model", b"a"))
    assert refused(body) == (400, "duplicate_key", "model")


def test_a_large_file_is_passed_over_in_steps() -> None:
    """A delimiter is found where two windows meet, too."""
    for more in range(-8, 3):
        size = 2 * WINDOW_BYTES + more
        body = form(part("file", b"x" * size, more='; filename="a"'), part("model", b"small"))
        steps = scan_form(mapped(body), CUT, {"model"})
        assert [next(steps), next(steps)] == [None, None]
        (field,) = finished(steps)
        assert body[field.start : field.end] == b"small"


@given(st.lists(st.tuples(st.sampled_from(["model", "stream", "file", "x"]), st.binary(max_size=40)), max_size=6, unique_by=lambda each: each[0]))  # fmt: skip
def test_any_form_that_is_well_made_is_read(fields: list[tuple[str, bytes]]) -> None:
    """Whatever is in its values."""
    clean = [(name, value.replace(b"--cut", b"")) for name, value in fields]
    body = form(*(part(name, value) for name, value in clean))
    wanted = {name: value for name, value in clean if name in {"model", "stream"}}
    try:
        texts = {name: value.decode() for name, value in wanted.items()}
    except UnicodeDecodeError:
        assert refused(body)[1] == "invalid_value"
    else:
        assert {each.name: each.text for each in found(body)} == texts


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Nothing else comes of them."""
    for body in (data, b"--cut\r\n" + data, form(data), form(part("model", data))):
        try:
            found(body)
        except RequestRefused as error:
            assert error.http_status == 400  # noqa: PT017 - either is fine
