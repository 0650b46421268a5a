"""How many components: curves over ranks, the network and the rules that read them."""
