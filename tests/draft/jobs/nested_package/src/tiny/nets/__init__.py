from tiny.nets.network import Net
