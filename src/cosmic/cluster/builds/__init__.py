"""How switches are arranged: one module a build, which knows its tiers and its bill of parts."""
