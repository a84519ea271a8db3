"""The second engine: the requests of Redis's scripts, carried out by transactions of etcd."""
