"""Dequantized values equal those of the `gguf` package, for every block type and for a whole file."""

import gguf
import numpy as np
import pytest

from pilotfish_training.gguf_file import BLOCKS, GgufFile


@pytest.mark.parametrize("kind", BLOCKS)
def test_every_block_type(kind):
    _, values, size, dequantize = BLOCKS[kind]
    raw = np.random.default_rng(kind).integers(0, 256, (64, size), dtype=np.uint8)
    if values > 1:  # Random bytes are no sensible half-precision scales: give them some.
        at = {10: [], 14: [208], 12: [0, 2], 13: [0, 2]}.get(kind, [0, 2] if kind in (3, 7) else [0])
        for position in at:
            scale = np.random.default_rng(position).normal(size=64).astype("<f2")
            raw[:, position:position + 2] = scale.view(np.uint8).reshape(64, 2)
    ours = dequantize(raw).reshape(-1)
    theirs = gguf.dequantize(raw, gguf.GGMLQuantizationType(kind)).reshape(-1)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


def test_file(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_uint32("llama.block_count", 3)
    writer.add_array("tokenizer.ggml.tokens", ["a", "bé"])
    writer.add_array("numbers", [1, 2, 3])
    values = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
    writer.add_tensor("plain", values)
    kind = gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor("packed", gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GgufFile(tmp_path / "x.gguf")
    assert file.fields["llama.block_count"] == 3
    assert file.fields["tokenizer.ggml.tokens"] == ["a", "bé"] and file.fields["numbers"] == [1, 2, 3]
    np.testing.assert_array_equal(file.tensor("plain"), values)
    np.testing.assert_array_equal(file.tensor("packed"), gguf.dequantize(gguf.quantize(values, kind), kind))


def test_refusals(tmp_path):
    (tmp_path / "x").write_bytes(b"no such thing")
    with pytest.raises(ValueError, match="not a GGUF"):
        GgufFile(tmp_path / "x")
    (tmp_path / "y").write_bytes(b"GGUF" + (3).to_bytes(4, "little") + b"\1")
    with pytest.raises(ValueError, match="ends inside"):
        GgufFile(tmp_path / "y")
