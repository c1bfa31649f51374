"""The endpoint picker: Envoy carries the requests, and asks here where each of them goes."""
