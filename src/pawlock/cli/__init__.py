"""The command `pawlock`: one file per verb, loaded when that verb is used."""
