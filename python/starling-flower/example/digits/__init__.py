"""Handwritten digits, learned by several sites: a logistic regression in numpy."""
