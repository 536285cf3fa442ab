"""The stat logger: totals in a file. Front-end process."""

import json
from pathlib import Path

from acme_engine.options import TotalsOptions
from hookspecs.contracts.stats import StatLogger, StatLoggerContext
from hookspecs.types.stats import IterationStats, SchedulerStats


class TotalsLogger(StatLogger):
    """Counts tokens and finished requests."""

    def __init__(self, context: StatLoggerContext) -> None:
        super().__init__(context)
        options: TotalsOptions = context.options
        self._path = Path(options.path)
        self._totals = {"prompt_tokens": 0, "generation_tokens": 0, "finished": 0}

    def record(
        self,
        scheduler: SchedulerStats | None,
        iteration: IterationStats | None,
        engine_index: int = 0,
    ) -> None:
        """Add up."""
        if iteration is not None:
            self._totals["prompt_tokens"] += iteration.num_prompt_tokens
            self._totals["generation_tokens"] += iteration.num_generation_tokens
            self._totals["finished"] += len(iteration.finished)

    def close(self) -> None:
        """Write the file."""
        self._path.write_text(json.dumps(self._totals), encoding="utf-8")
