"""From documents and folders to what a page shows."""
