"""Runs in our own environment: writes an int8 copy of a model directory that vLLM reads.

Layout "int-quantized" of compressed-tensors: weights of linear layers rounded to the nearest of
255 steps a row, activations quantized per token as they come. No calibration: a copy to measure
speed with. The output head stays as it is. `make_w8a8.py MODEL TARGET`.
"""

import json
import shutil
import sys
from pathlib import Path


def main() -> None:
    """Write the copy."""
    import torch
    from safetensors.torch import load_file, save_file

    source, target = map(Path, sys.argv[1:])
    target.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for name, weight in load_file(source / "model.safetensors").items():
        if not name.endswith("_proj.weight"):
            tensors[name] = weight
            continue
        scale = weight.float().abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
        tensors[name] = (weight.float() / scale).round().to(torch.int8)
        tensors[name + "_scale"] = scale
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    for path in source.iterdir():
        if path.name not in ("config.json", "model.safetensors"):
            shutil.copy(path, target)
    config = json.loads((source / "config.json").read_text())
    number = {"num_bits": 8, "type": "int", "symmetric": True}
    config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {**number, "strategy": "channel", "dynamic": False},
                "input_activations": {**number, "strategy": "token", "dynamic": True},
            }
        },
    }
    (target / "config.json").write_text(json.dumps(config))


if __name__ == "__main__":
    main()
