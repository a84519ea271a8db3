"""A server that is no server: pawlock's own scripts on keys in memory, in the process of a test.

The clients are the real ones, sync or async, down to the last step: where a connection would send a request, the
script runs here.
"""
