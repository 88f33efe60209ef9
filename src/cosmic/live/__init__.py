"""The live page: studies as they grow, searches, what-if designs; served to this machine only."""
