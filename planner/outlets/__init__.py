"""What a published plan becomes outside: Kubernetes objects, a webhook call, gauges."""
