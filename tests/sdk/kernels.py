"""A small kernel library for tests."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import numpy.typing as npt

from framework.sdk.native import load_library

__all__ = ["SOURCE", "covered", "library", "nested"]

SOURCE = r"""
#include "fw_kernel.h"

typedef struct { int32_t *hits; int64_t inner; int64_t base; } work;

static void hit(void *context, int64_t begin, int64_t end, int thread) {
    work *own = context;
    for (int64_t i = begin; i < end; i++)
        __atomic_fetch_add(&own->hits[own->base + i], thread < fw_num_threads() ? 1 : 1000, 0);
}

static void hit_row(void *context, int64_t begin, int64_t end, int thread) {
    (void)thread;
    work *own = context;
    for (int64_t i = begin; i < end; i++) {
        work row = {own->hits, own->inner, i * own->inner};
        fw_parallel_for(hit, &row, own->inner, 1);
    }
}

FW_EXPORT void cover(int32_t *hits, int64_t count, int64_t grain) {
    work own = {hits, 0, 0};
    fw_parallel_for(hit, &own, count, grain);
}

FW_EXPORT void nested(int32_t *hits, int64_t outer, int64_t inner) {
    work own = {hits, inner, 0};
    fw_parallel_for(hit_row, &own, outer, 1);
}

FW_EXPORT int64_t answer(void) { return ANSWER; }
"""


def library(directory: Path, answer: int = 42) -> ctypes.CDLL:
    """The library, its source written into the directory."""
    source = directory / "test_kernels.c"
    if not source.exists():
        source.write_text(SOURCE, encoding="utf-8")
    return load_library("test-kernels", source, flags=[f"-DANSWER={answer}"])


def covered(kernels: ctypes.CDLL, count: int, grain: int) -> npt.NDArray[np.int32]:
    """How often each index was worked on."""
    hits = np.zeros(max(count, 0), np.int32)
    kernels.cover(ctypes.c_void_p(hits.ctypes.data), ctypes.c_int64(count), ctypes.c_int64(grain))
    return hits


def nested(kernels: ctypes.CDLL, outer: int, inner: int) -> npt.NDArray[np.int32]:
    """The same for a loop in a loop."""
    hits = np.zeros(outer * inner, np.int32)
    kernels.nested(ctypes.c_void_p(hits.ctypes.data), ctypes.c_int64(outer), ctypes.c_int64(inner))
    return hits
