"""What a runtime, a connection and a primitive must offer; names, scripts, options and time. Imports no other layer."""
