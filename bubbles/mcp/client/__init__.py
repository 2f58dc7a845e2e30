"""Speaking with MCP servers. What imports the SDK is itself imported when a server is first needed: it takes 0.5 s."""
