"""Prometheus' text format: read from engines, written for whoever scrapes the router."""
