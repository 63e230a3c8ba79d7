"""Strategies, or meta-generators G: generators made of calls to generators and verifiers."""
