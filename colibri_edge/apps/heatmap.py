"""The picture of a routing trace: a row for each sparse layer, a column for each expert, brighter where it was chosen more often.

Owns: the heat map, a PNG writer of one function over zlib, the figures of each layer. Refuses: a plotting library for one heat map.
"""
from __future__ import annotations

import struct
import zlib

import numpy as np

# Dark blue, violet, red, orange, light yellow: rising in brightness, so that it reads in grey as well.
COLOURS = np.array([[8, 10, 40], [90, 20, 110], [190, 50, 80], [245, 140, 40], [252, 250, 180]], float)
GLYPHS = {  # 3 x 5 dots, rows from the top, bits from the left
    "0": (7, 5, 5, 5, 7), "1": (2, 6, 2, 2, 7), "2": (7, 1, 7, 4, 7), "3": (7, 1, 7, 1, 7), "4": (5, 5, 7, 1, 1),
    "5": (7, 4, 7, 1, 7), "6": (7, 4, 7, 5, 7), "7": (7, 1, 1, 1, 1), "8": (7, 5, 7, 5, 7), "9": (7, 5, 7, 1, 7),
}
DOT, MARGIN = 2, 44     # pixels of a dot of a digit, of the left and lower edge


def png(pixels: np.ndarray) -> bytes:
    """An image uint8 [height, width, 3] as PNG (ISO/IEC 15948: signature, IHDR, IDAT, IEND; each row with filter 0)."""
    height, width, _ = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, 3 * width)], 1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)) + chunk(b"IEND", b""))


def colour(x: np.ndarray) -> np.ndarray:
    """Shares 0 to 1 [...] -> colours uint8 [..., 3]."""
    at = np.linspace(0, 1, len(COLOURS))
    return np.stack([np.interp(x, at, COLOURS[:, c]) for c in range(3)], -1).round().astype(np.uint8)


def _write(pixels: np.ndarray, y: int, x: int, number: int) -> None:
    """A number, its upper left corner at (y, x)."""
    for i, c in enumerate(str(number)):
        dots = np.array([[g >> 2 & 1, g >> 1 & 1, g & 1] for g in GLYPHS[c]], bool).repeat(DOT, 0).repeat(DOT, 1)
        left = x + i * 4 * DOT
        part = pixels[y:y + dots.shape[0], left:left + dots.shape[1]]
        part[dots[:part.shape[0], :part.shape[1]]] = 60


def draw(layers: list[int], use: list[np.ndarray], cell: int | None = None) -> np.ndarray:
    """The picture, uint8 [height, width, 3]: brightness is an expert's share of its layer's uses, the most used of all at the brightest."""
    most = max(map(len, use))
    cell = cell or max(3, min(32, 1000 // most))
    grid = np.full((len(use), most), np.nan)
    for n, counts in enumerate(use):
        grid[n, :len(counts)] = counts / max(1, counts.sum())
    top = np.nanmax(grid) or 1.0
    body = np.where(np.isnan(grid)[..., None], np.uint8(255), colour(np.nan_to_num(grid) / top)).repeat(cell, 0).repeat(cell, 1)
    out = np.full((body.shape[0] + MARGIN // 2, body.shape[1] + MARGIN, 3), 255, np.uint8)
    out[:body.shape[0], MARGIN:] = body
    high = 5 * DOT
    for n in range(0, len(use), -(-(high + 4) // cell)):
        _write(out, n * cell + max(0, (cell - high) // 2), 4, layers[n])
    for e in range(0, most, -(-40 // cell)):
        _write(out, body.shape[0] + 6, MARGIN + e * cell, e)
    return out


def summary(layers: list[int], use: list[np.ndarray]) -> list[dict]:
    """One object a layer: uses, experts never used, the share of the busiest eighth, the entropy of use in bits (log2 experts: even)."""
    rows = []
    for layer, counts in zip(layers, use, strict=True):
        p = np.sort(counts)[::-1] / max(1, counts.sum())
        some = p[p > 0]
        rows.append({"layer": layer, "experts": len(counts), "uses": int(counts.sum()), "unused": int((counts == 0).sum()),
                     "busiest_eighth": round(float(p[:-(-len(p) // 8)].sum()), 4),
                     "entropy_bits": round(float(-(some * np.log2(some)).sum()), 3),
                     "counts": counts.tolist()})
    return rows
