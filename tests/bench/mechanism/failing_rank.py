"""What torchrun starts in a test: rank 1 cannot make its third product."""

from __future__ import annotations

import os
import sys

from pointsman.bench.mechanism.__main__ import main
from pointsman.bench.mechanism.ranks import SquareProducts


class FailsOnRankOne(SquareProducts):
    made = 0

    def unit(self):
        self.made += 1
        if os.environ["RANK"] == "1" and self.made == 3:
            raise RuntimeError("the stand-in is out of memory")
        super().unit()


if __name__ == "__main__":
    sys.exit(main(make_work=FailsOnRankOne))
