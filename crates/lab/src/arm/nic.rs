//! Whether the arm `nic` can run: a network card that seals, with the server's traffic on it.

use std::net::IpAddr;
use std::process::Command;

use sealion_ktls::nic::{Feature, nics};

/// Where servers listen and requests come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) address: IpAddr,
    pub(crate) client: ClientPlace,
}

/// Where requests come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientPlace {
    /// This machine: its packets to any of its own addresses go over loopback.
    Here,
    /// Another machine, by an agent.
    Elsewhere,
}

/// A network card, as far as sending goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Card {
    name: String,
    tx: Feature,
}

/// The network cards here.
pub(super) fn cards() -> Vec<Card> {
    nics().unwrap_or_default().into_iter().map(|nic| Card { name: nic.name, tx: nic.tx }).collect()
}

/// The reason why no network card can seal for a server at `place`; `None`: the card of that address can. `interface`: the
/// interface that has the address, if it is known.
pub(super) fn absent(cards: &[Card], interface: Option<&str>, place: Place) -> Option<String> {
    let able = || cards.iter().filter(|card| card.tx != Feature::Absent);
    let Some(first) = able().min_by_key(|card| &card.name) else {
        return Some("no network card here has TLS offload".to_owned());
    };
    if place.address.is_loopback() {
        return Some(format!(
            "the servers listen on {}, and no card carries loopback: --address of {}",
            place.address, first.name
        ));
    }
    if place.client == ClientPlace::Here {
        return Some("a client on this machine reaches every address of it over loopback: --agent".to_owned());
    }
    let Some(interface) = interface else {
        return Some(format!("no interface here has the address {}: --address of {}", place.address, first.name));
    };
    match able().find(|card| card.name == interface) {
        None => Some(format!(
            "{interface}, which has the address {}, has no TLS offload; {} has",
            place.address, first.name
        )),
        Some(card) if card.tx != Feature::On => {
            Some(format!("{interface} has TLS offload, and it is off: ethtool -K {interface} tls-hw-tx-offload on"))
        }
        Some(_) => None,
    }
}

/// The interface that has `address`, by ip(8).
pub(super) fn interface_of(address: IpAddr) -> Option<String> {
    let output = Command::new("ip").args(["-o", "addr", "show"]).output().ok()?;
    find(&String::from_utf8_lossy(&output.stdout), address)
}

/// Lines of `2: eth0    inet 192.0.2.1/24 brd …`.
fn find(lines: &str, address: IpAddr) -> Option<String> {
    lines.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (interface, _family, with_prefix) = (words.next()?, words.next()?, words.next()?);
        let found: IpAddr = with_prefix.split('/').next()?.parse().ok()?;
        (found == address).then(|| interface.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arm_runs_only_where_its_packets_meet_the_card() {
        let card = |name: &str, tx| Card { name: name.into(), tx };
        let nics = [card("eth0", Feature::Absent), card("eth1", Feature::On), card("eth2", Feature::Off)];
        let place = |address: &str, client| Place { address: address.parse().expect("an address"), client };
        let far = place("192.0.2.1", ClientPlace::Elsewhere);
        assert_eq!(absent(&nics, Some("eth1"), far), None);
        for (nics, interface, place, part) in [
            (&nics[..1], Some("eth0"), far, "no network card here"),
            (
                &nics,
                Some("lo"),
                place("127.0.0.1", ClientPlace::Elsewhere),
                "no card carries loopback: --address of eth1",
            ),
            (&nics, Some("eth1"), place("192.0.2.1", ClientPlace::Here), "over loopback: --agent"),
            (&nics, None, far, "no interface here has the address 192.0.2.1"),
            (&nics, Some("eth0"), far, "eth0, which has the address 192.0.2.1, has no TLS offload; eth1 has"),
            (&nics, Some("eth2"), far, "ethtool -K eth2 tls-hw-tx-offload on"),
        ] {
            let why = absent(nics, interface, place).unwrap_or_default();
            assert!(why.contains(part), "{part}: {why}");
        }
    }

    #[test]
    fn an_address_is_found_on_its_interface() {
        let lines = "1: lo    inet 127.0.0.1/8 scope host lo\n2: eth0    inet 192.0.2.1/24 brd 192.0.2.255 scope global eth0\n\
                     2: eth0    inet6 2001:db8::1/64 scope global\n";
        let on = |address: &str| find(lines, address.parse().expect("an address"));
        assert_eq!(on("192.0.2.1").as_deref(), Some("eth0"));
        assert_eq!(on("2001:db8::1").as_deref(), Some("eth0"));
        assert_eq!(on("192.0.2.2"), None);
    }
}
