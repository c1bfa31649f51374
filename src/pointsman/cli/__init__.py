"""Words in, exit codes out; the only reader of environment and terminal."""
