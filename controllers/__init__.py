"""The controllers: each brings what there is closer to what was asked for. One replica leads; the others are hot."""
