"""The driver that routes live traffic: an OpenAI-compatible endpoint."""
