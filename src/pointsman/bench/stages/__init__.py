"""Each measured request in stages: of client, router log and engines."""
