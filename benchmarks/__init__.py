"""Measurements that compare us with others. No part of the product: nothing in daemon/ imports it."""
