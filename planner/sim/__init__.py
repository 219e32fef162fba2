"""A discrete-event model of the whole fleet that runs the router's real policies."""
