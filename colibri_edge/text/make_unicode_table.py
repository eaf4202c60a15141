"""Writes _unicode_table.py.

Run by hand, with the ``tokenizers`` library and perl (any of Unicode 9 or later):

    python colibri_edge/text/make_unicode_table.py > colibri_edge/text/_unicode_table.py

General categories are asked from the regular-expression engine inside ``tokenizers``, because its edition of Unicode (16.0 in
release 0.23) is the one that vocabularies are encoded with. The code points that came after Unicode 9.0 are asked from perl:
the normalisation in ``tokenizers`` stands at 9.0 and leaves later characters alone.
"""

from __future__ import annotations

import base64
import subprocess
import zlib

from tokenizers import Regex, pre_tokenizers

CATEGORIES = ["Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po",
              "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co"]
ALL = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)


def members(pattern: str) -> list[int]:
    removed = pre_tokenizers.Split(Regex(f"(?:{pattern})+"), "removed")
    return sorted(set(range(0x110000)) - set(range(0xD800, 0xE000))
                  - {ord(c) for piece, _ in removed.pre_tokenize_str(ALL) for c in piece})


def ranges(points: list[int]) -> list[int]:
    """Borders: in at the even places, out at the odd ones."""
    out: list[int] = []
    for p in points:
        if out and out[-1] == p:
            out[-1] = p + 1
        else:
            out += [p, p + 1]
    return out


def packed(borders: list[int]) -> str:
    deltas = [b - a for a, b in zip([0, *borders], borders, strict=False)]
    return base64.b85encode(zlib.compress(" ".join(map(str, deltas)).encode(), 9)).decode()


def newer_than_9() -> list[int]:
    script = r'for my $c (0..0x10ffff) { next if $c >= 0xD800 && $c < 0xE000; print "$c\n" if chr($c) !~ /\p{Present_In: 9.0}/ }'
    done = subprocess.run(["perl", "-e", script], capture_output=True, text=True, check=True)
    return [int(x) for x in done.stdout.split()]


def main() -> None:
    table = {c: ranges(members(rf"\p{{{c}}}")) for c in CATEGORIES}
    table["space"] = ranges(members(r"\s"))
    table["Han"] = ranges(members(r"\p{Han}"))
    table["after 9.0"] = ranges(newer_than_9())
    print('"""Unicode 16.0 categories as borders of ranges; written by make_unicode_table.py, not by hand."""\n')
    print("PACKED = {")
    for name, borders in table.items():
        text = packed(borders)
        print(f'    "{name}": (')
        for i in range(0, len(text), 100):
            print(f"        {text[i:i + 100]!r}")
        print("    ),")
    print("}")


if __name__ == "__main__":
    main()
