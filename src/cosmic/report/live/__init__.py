"""The live page: studies as they grow, searches, what-if designs; served to this machine only.

`server` opens the socket and lists the addresses, `access_control` decides who is let in.
"""
