"""Li and Pimentel-Alarcon (2024): transformer projection heads in contrastive learning."""
