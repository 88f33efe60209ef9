"""What a cluster costs to buy and to own: dollars, and the watts of its network."""
