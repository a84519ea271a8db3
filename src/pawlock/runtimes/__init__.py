"""The two ways to wait: threads and asyncio."""
