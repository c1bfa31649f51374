"""What groups of an experiment will measure, said before they run, and held against it after."""
