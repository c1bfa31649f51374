"""What the simulator and the router share: view, ledger, prefix index, decision record."""
