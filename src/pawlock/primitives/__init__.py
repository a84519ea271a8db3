"""What pawlock builds on its scripts: one sub-package per primitive, each with its server-side Lua."""
