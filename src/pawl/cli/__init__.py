"""The command `pawl`: one file per verb, loaded when that verb is used."""
