"""Messages and sockets."""
