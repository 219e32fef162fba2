"""SLOMax in the running router: requests that wait, whose turn it is, and the books of Goodput."""
