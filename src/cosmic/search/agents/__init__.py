"""Agents, one file each; `cosmic.search.agent.agents` finds them here."""
