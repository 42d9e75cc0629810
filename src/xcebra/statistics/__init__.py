"""What a recording says without a network: encoding, decoding, classical scores, tests."""
