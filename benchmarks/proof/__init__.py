"""The policy contest: public traces, three fleets, three loads, peers tuned with the same budget of trials."""
