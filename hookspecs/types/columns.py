"""Columns: one-dimensional arrays in which a batch's facts lie, one element a row.

The contract imports no numpy. Type checkers see numpy arrays; at run time each name is a
marker class that accepts any object with a `dtype`, so that a codec can tell from a
struct's field which dtype to restore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy as np
    from numpy.typing import NDArray

    Int8Column: TypeAlias = NDArray[np.int8]
    Int32Column: TypeAlias = NDArray[np.int32]
    Int64Column: TypeAlias = NDArray[np.int64]
    Float32Column: TypeAlias = NDArray[np.float32]
    BoolColumn: TypeAlias = NDArray[np.bool_]
else:

    class _ColumnType(type):
        _seen: Any = None  # a dtype of that name: numpy puts the name together at each access

        def __instancecheck__(cls, instance: Any) -> bool:
            dtype = getattr(instance, "dtype", None)
            if dtype is not None and dtype is cls._seen:
                return True
            if getattr(dtype, "name", None) != cls.dtype:
                return False
            cls._seen = dtype
            return True

    class Int8Column(metaclass=_ColumnType):
        """int8[rows]"""

        dtype: ClassVar[str] = "int8"

    class Int32Column(metaclass=_ColumnType):
        """int32[rows]"""

        dtype: ClassVar[str] = "int32"

    class Int64Column(metaclass=_ColumnType):
        """int64[rows]"""

        dtype: ClassVar[str] = "int64"

    class Float32Column(metaclass=_ColumnType):
        """float32[rows]"""

        dtype: ClassVar[str] = "float32"

    class BoolColumn(metaclass=_ColumnType):
        """bool[rows]"""

        dtype: ClassVar[str] = "bool"


__all__ = ["BoolColumn", "Float32Column", "Int8Column", "Int32Column", "Int64Column"]
