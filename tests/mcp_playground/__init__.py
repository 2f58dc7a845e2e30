"""MCP servers for tests: real ones, made from the SDK, and one that does what no server should."""
