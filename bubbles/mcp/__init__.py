"""MCP servers: programs and addresses of the owner's that offer tools (TOOL-09)."""
