"""For model sources: what a directory with config.json and *.safetensors files says of its model.

`describe(context, name, directory)` makes the `ResolvedModel` that a source returns, once it has
the files in a directory. It follows `model.tokenizer` and `model.trust_remote_code`.
"""

from framework.sdk.model_directory.describe import describe
from framework.sdk.model_directory.local_path import local_path

__all__ = ["describe", "local_path"]
