"""What every server in the process of a test is made of: a thread that serves, connections, runtimes, outages.

What is asked there, and what is answered, is of no concern here: ``memory`` runs pawlock's scripts, ``lock_table`` has an
engine of its own. Imports nothing of either.
"""
