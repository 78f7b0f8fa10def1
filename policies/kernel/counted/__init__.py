"""List scheduling by counted resources: functions that run compiled on arrays, or on plain lists.

Tables are flat, so that one way of indexing does for both; `compiled` alone needs the compiler.

Notes
-----
A *form* is what items ask of a node. ``fit`` has how many processes of a form each node takes now,
``bars`` how many nodes of a cluster take so many, ``mass`` how many all of them take; they follow
when a node changes. Whether an item fits is one pass down the bars; only nodes with bookings ahead
are looked at by themselves, over the whole run. Licences and links are rows behind the nodes. One
more form and more rows of nodes show a later instant to `listing.seek`.
"""
