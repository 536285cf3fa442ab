"""Tokens served to each tenant. Core process, main thread.

Tenants with requests in the engine have a small number, for columns. The counts of others are kept
for the most recent ones, so that names made up by users do not fill the memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import numpy as np

from hookspecs.types.columns import Int32Column, Int64Column

__all__ = ["TenantLedger"]

_REMEMBERED = 4096


class TenantLedger:
    """Counts served tokens by tenant."""

    def __init__(self, settle: Callable[[], None]) -> None:
        """`settle` counts what was served and is not counted yet: it is called when somebody
        wants to know, since in most engines nobody does."""
        self._settle = settle
        self._index: dict[str, int] = {}
        self._requests: dict[str, int] = {}
        self._free: list[int] = []
        self._served: Int64Column = np.zeros(16, np.int64)
        self._absent: OrderedDict[str, int] = OrderedDict()
        """Served tokens of tenants without a request, least recent first."""

    def enter(self, tenant: str) -> int:
        """A request of the tenant arrived; the tenant's number."""
        self._requests[tenant] = self._requests.get(tenant, 0) + 1
        if tenant in self._index:
            return self._index[tenant]
        index = self._free.pop() if self._free else len(self._index)
        if index >= len(self._served):
            self._served = np.concatenate([self._served, np.zeros_like(self._served)])
        self._index[tenant] = index
        self._served[index] = self._absent.pop(tenant, 0)
        return index

    def leave(self, tenant: str) -> None:
        """A request of the tenant ended."""
        self._requests[tenant] -= 1
        if self._requests[tenant]:
            return
        del self._requests[tenant]
        index = self._index.pop(tenant)
        self._free.append(index)
        self._absent[tenant] = int(self._served[index])
        while len(self._absent) > _REMEMBERED:
            self._absent.popitem(last=False)

    def count(self, indexes: Int32Column, tokens: Int32Column) -> None:
        """Add tokens to the tenants of those numbers, one element a row."""
        np.add.at(self._served, indexes, tokens)

    def served(self, tenant: str) -> int:
        """Tokens served; 0 for a tenant that is not known (any more)."""
        self._settle()
        index = self._index.get(tenant)
        return self._absent.get(tenant, 0) if index is None else int(self._served[index])
