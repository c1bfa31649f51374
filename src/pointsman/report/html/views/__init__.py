"""One question a file: from results to charts."""
