"""Prints the nftables commands of a number of services with one endpoint, for benchmarks: the first one is 10.96.0.1:80."""

from collections import Counter
from ipaddress import IPv4Address

import click

from pinnace.proxy.nftables import ServiceObjects, base_commands, build_service_objects, build_transaction
from pinnace.proxy.plan import Endpoint, Frontend, Rule, ServiceRules
from pinnace.runtime import flags


@click.command()
@click.option("--services", type=click.IntRange(min=1, max=100_000), default=1, show_default=True, help="How many.")
@click.option("--endpoint", type=flags.parse_address_option, required=True, help="The endpoint of all services.")
def main(services: int, endpoint: tuple[str, int]) -> None:
    """Print nftables commands for a benchmark."""
    pairs = []
    for number in range(services):
        frontend = Frontend(str(IPv4Address("10.96.0.1") + number), 80, "TCP")
        rules = ServiceRules({frontend: Rule(f"default/s{number}", (Endpoint(*endpoint),))})
        pairs.append((ServiceObjects(), build_service_objects(f"default/s{number}", rules, 4)))
    click.echo("\n".join([*base_commands(4, ()), *build_transaction(4, pairs, Counter())]))


if __name__ == "__main__":
    main()
