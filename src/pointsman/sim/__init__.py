"""The driver that runs time in a computer's memory."""
