"""Jobs: messages that come by the clock. So far the contract; the service comes with the gateway."""
