"""What was decided, asked and run, one JSON object a line, kept by month (AUD-01, AUD-02). See ``events``."""
