"""A federation of six clinics that train adapters of a tiny GPT."""
