"""Agents, one file each; `cosmic.exploration.agent.agents` finds them here."""
