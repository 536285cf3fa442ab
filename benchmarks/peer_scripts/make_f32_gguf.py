"""Runs in our own environment: writes a GGUF file with all its tensors in float32.

Everything else is taken over from the file given. `make_f32_gguf.py SOURCE.gguf TARGET.gguf`.
"""

import sys
from pathlib import Path


def main() -> None:
    """Write the file."""
    from gguf import GGUFReader, GGUFValueType, GGUFWriter, dequantize

    source, target = map(Path, sys.argv[1:])
    reader = GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    target.parent.mkdir(parents=True, exist_ok=True)
    writer = GGUFWriter(target, architecture)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == GGUFValueType.ARRAY else None
        value = 0 if name == "general.file_type" else field.contents()  # 0: all float32
        writer.add_key_value(name, value, kind, sub_type=inner)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
