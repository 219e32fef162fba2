"""Why an attempt ended that an engine did not complete; refusals have reasons of their own."""

CRASHED = "crashed"
LINK_CUT = "link_cut"
NOT_CONNECTED = "not_connected"
TIMED_OUT = "client_timeout"
CLIENT_CANCELLED = "client_cancelled"
