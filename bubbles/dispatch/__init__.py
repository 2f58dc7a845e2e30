"""From messages to turns and back: one worker a session, serial inside, parallel across, capped. ``contract`` first."""
