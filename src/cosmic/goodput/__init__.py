"""What share of a long run on machines that fail is training: closed form, simulation, spares, published runs."""
