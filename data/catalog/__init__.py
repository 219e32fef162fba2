"""GPU types and models: service times, memory, load time, each with its source, date and error."""
