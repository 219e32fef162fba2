"""Rules that choose a site otherwise, to be compared with."""
