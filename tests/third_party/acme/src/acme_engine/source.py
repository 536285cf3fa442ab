"""The model source: the model `echo` has no files."""

from acme_engine.options import EchoOptions
from hookspecs.contracts.model import ModelInfo, ModelSource, ModelSourceContext, ResolvedModel


class EchoSource(ModelSource):
    """Resolves `echo`."""

    def __init__(self, context: ModelSourceContext) -> None:
        super().__init__(context)
        self._options: EchoOptions = context.options

    def matches(self, name: str) -> bool:
        """Exactly one name."""
        return name == "echo"

    def resolve(self, name: str, revision: str | None) -> ResolvedModel:
        """No files and no tokenizer."""
        info = ModelInfo(
            architecture="AcmeEcho",
            vocab_size=self._options.vocab_size,
            max_model_len=self._options.max_model_len,
            has_tokenizer=False,
        )
        return ResolvedModel(name=name, path=None, tokenizer_path=None, info=info)
