"""How switches are arranged: a build knows its tiers and its bill of parts."""
