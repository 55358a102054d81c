# The versions that make cluster installs, from the Go module proxy.
KUBERNETES=v1.34.4
HELM=v4.3.1
HELM3=v3.22.0
NATS=v2.15.2
COREDNS=v1.15.0
