"""What a client does in the background: a loop and its list of duties. Imports the layers below it.

A duty is a class with what it needs of ``MaintenanceDuty``, and one entry in ``loop.DUTIES``.
"""
