"""Wang et al. (2022), k-NN attention, and Chang et al. (2023), semantic tokens."""
