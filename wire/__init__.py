"""The protocol between our processes: frames, codec, sockets, server, client, publisher."""
