"""Skills: folders with a SKILL.md, which sessions have copies of."""
