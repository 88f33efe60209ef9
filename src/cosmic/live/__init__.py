"""The live page: studies as they grow, designs as they change; served to this machine alone."""
