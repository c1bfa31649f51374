"""What the router hears from engines: their metrics, and what their caches hold."""
