"""What is measured: ratios against a floor or a peer in the same run."""
