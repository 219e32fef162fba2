"""The routing service: requests of the wire in, answers out, over gRPC."""
