"""The experiment of ``pointsman bench --demo``: a real engine on any laptop."""

from __future__ import annotations

from pathlib import Path

DEMO = Path(__file__).with_name("demo.toml")
