"""The load client: requests sent on schedule, answers stamped at the socket, a row a request."""
