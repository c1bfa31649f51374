"""The live page of the router: what it does now, for whoever looks in a browser."""
