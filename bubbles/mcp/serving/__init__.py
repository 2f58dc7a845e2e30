"""Bubbles as an MCP server: its tools for another agent, over standard input and output."""
