//! Network cards that can seal and open records themselves, and whether the feature is on.
//!
//! Such a card takes a connection's keys automatically at the handover (`tls-offload.rst`). The kernel reports the
//! features to every process, by ethtool netlink (`ethtool-netlink.rst`, Linux 5.6).

use rustix::net::netlink;

use crate::netlink::{NLM_F_DUMP, NLM_F_REQUEST, ask};
use crate::{Error, Operation};

/// Every network interface of this network namespace, in the kernel's order.
///
/// `Unsupported`: the kernel lacks ethtool netlink.
pub fn nics() -> Result<Vec<Nic>, Error> {
    let failed = |errno| Error::from_errno(Operation::Nics, errno);
    let mut family = None;
    ask(netlink::GENERIC, &wire::family_request(), |_, body| family = family.or(wire::family(body))).map_err(failed)?;
    let family = family.ok_or(failed(rustix::io::Errno::NOENT))?;
    let mut nics = Vec::new();
    ask(netlink::GENERIC, &wire::features_request(family), |_, body| nics.extend(wire::nic(body))).map_err(failed)?;
    Ok(nics)
}

/// Parses one datagram of replies.
pub(crate) fn parse(datagram: &[u8]) -> Vec<Nic> {
    let mut nics = Vec::new();
    crate::netlink::read(datagram, |_, body| nics.extend(wire::nic(body)));
    nics
}

/// A network interface and its features for TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Nic {
    /// The name of the interface, such as `eth0`.
    pub name: String,
    /// `tls-hw-tx-offload`: it seals records that the kernel frames.
    pub tx: Feature,
    /// `tls-hw-rx-offload`: it opens records.
    pub rx: Feature,
    /// `tls-hw-record`: it does the whole of TCP and TLS.
    pub record: Feature,
}

/// The state of a feature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Feature {
    /// Neither the card nor its driver supports it.
    #[default]
    Absent,
    /// It is supported, and switched off.
    Off,
    /// New connections use it.
    On,
}

/// The messages of `linux/genetlink.h` and `linux/ethtool_netlink.h`. Pure: bytes in, values out.
mod wire {
    use super::{Feature, NLM_F_DUMP, NLM_F_REQUEST, Nic};
    use crate::netlink::{attribute, attributes, find, message, u16_at};

    const GENL_ID_CTRL: u16 = 16;
    const CTRL_CMD_GETFAMILY: u8 = 3;
    const CTRL_ATTR_FAMILY_ID: u16 = 1;
    const CTRL_ATTR_FAMILY_NAME: u16 = 2;
    const ETHTOOL_GENL_VERSION: u8 = 1;
    const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
    const ETHTOOL_A_FEATURES_HEADER: u16 = 1;
    /// The bits that can be switched.
    const ETHTOOL_A_FEATURES_HW: u16 = 2;
    const ETHTOOL_A_FEATURES_ACTIVE: u16 = 4;
    const ETHTOOL_A_HEADER_DEV_NAME: u16 = 2;
    const ETHTOOL_A_BITSET_NOMASK: u16 = 1;
    const ETHTOOL_A_BITSET_BITS: u16 = 3;
    const ETHTOOL_A_BITSET_BITS_BIT: u16 = 1;
    const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;
    const ETHTOOL_A_BITSET_BIT_VALUE: u16 = 3;
    const NLA_F_NESTED: u16 = 0x8000;
    /// struct genlmsghdr: command, version, 2 bytes reserved.
    const GENL_HEADER: usize = 4;

    pub(super) fn family_request() -> Vec<u8> {
        let name = attribute(CTRL_ATTR_FAMILY_NAME, b"ethtool\0");
        message(GENL_ID_CTRL, NLM_F_REQUEST, &[&[CTRL_CMD_GETFAMILY, 1, 0, 0][..], &name].concat())
    }

    /// The number of ethtool's family in generic netlink.
    pub(super) fn family(body: &[u8]) -> Option<u16> {
        u16_at(find(body.get(GENL_HEADER..)?, CTRL_ATTR_FAMILY_ID)?, 0)
    }

    /// A request for all interfaces. Without ETHTOOL_FLAG_COMPACT_BITSETS the reply names each feature.
    pub(super) fn features_request(family: u16) -> Vec<u8> {
        let header = attribute(ETHTOOL_A_FEATURES_HEADER | NLA_F_NESTED, &[]);
        let command = [ETHTOOL_MSG_FEATURES_GET, ETHTOOL_GENL_VERSION, 0, 0];
        message(family, NLM_F_DUMP, &[&command[..], &header].concat())
    }

    /// The interface that a reply describes.
    pub(super) fn nic(body: &[u8]) -> Option<Nic> {
        let body = body.get(GENL_HEADER..)?;
        let name = find(find(body, ETHTOOL_A_FEATURES_HEADER)?, ETHTOOL_A_HEADER_DEV_NAME)?;
        let set = |kind, feature| find(body, kind).is_some_and(|bits| has(bits, feature));
        let state = |feature| {
            if set(ETHTOOL_A_FEATURES_ACTIVE, feature) {
                Feature::On
            } else if set(ETHTOOL_A_FEATURES_HW, feature) {
                Feature::Off
            } else {
                Feature::Absent
            }
        };
        Some(Nic {
            name: text(name),
            tx: state("tls-hw-tx-offload"),
            rx: state("tls-hw-rx-offload"),
            record: state("tls-hw-record"),
        })
    }

    /// Whether a bitset in the long form contains the bit `name`. Without a mask, the bitset lists the bits that are
    /// set; with a mask, it lists all bits and their values.
    fn has(bitset: &[u8], name: &str) -> bool {
        let only_set = find(bitset, ETHTOOL_A_BITSET_NOMASK).is_some();
        find(bitset, ETHTOOL_A_BITSET_BITS).is_some_and(|bits| {
            attributes(bits).any(|(kind, bit)| {
                kind == ETHTOOL_A_BITSET_BITS_BIT
                    && find(bit, ETHTOOL_A_BITSET_BIT_NAME).is_some_and(|found| text(found) == name)
                    && (only_set || find(bit, ETHTOOL_A_BITSET_BIT_VALUE).is_some())
            })
        })
    }

    /// A string that ends with a zero byte, as in netlink.
    fn text(bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned()
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::netlink::tests::break_every_byte;

        const HEAD: [u8; 4] = [ETHTOOL_MSG_FEATURES_GET, 1, 0, 0];

        fn named(name: &str) -> Vec<u8> {
            attribute(ETHTOOL_A_BITSET_BIT_NAME, format!("{name}\0").as_bytes())
        }

        /// `bits`: names, and whether they are set.
        fn bitset(kind: u16, masked: bool, bits: &[(&str, bool)]) -> Vec<u8> {
            let bits: Vec<u8> = bits
                .iter()
                .filter(|(_, set)| masked || *set)
                .flat_map(|(name, set)| {
                    let value = if masked && *set { attribute(ETHTOOL_A_BITSET_BIT_VALUE, &[]) } else { Vec::new() };
                    attribute(ETHTOOL_A_BITSET_BITS_BIT | NLA_F_NESTED, &[named(name), value].concat())
                })
                .collect();
            let mask = if masked { Vec::new() } else { attribute(ETHTOOL_A_BITSET_NOMASK, &[]) };
            let size = attribute(2, &64_u32.to_ne_bytes());
            attribute(kind | NLA_F_NESTED, &[mask, size, attribute(ETHTOOL_A_BITSET_BITS, &bits)].concat())
        }

        fn answer(masked: bool, hw: &[(&str, bool)], active: &[(&str, bool)]) -> Vec<u8> {
            let header = [attribute(1, &2_u32.to_ne_bytes()), attribute(ETHTOOL_A_HEADER_DEV_NAME, b"eth0\0")].concat();
            [
                HEAD.to_vec(),
                attribute(ETHTOOL_A_FEATURES_HEADER | NLA_F_NESTED, &header),
                bitset(ETHTOOL_A_FEATURES_HW, masked, hw),
                bitset(3, masked, &[("tls-hw-record", true)]),
                bitset(ETHTOOL_A_FEATURES_ACTIVE, masked, active),
            ]
            .concat()
        }

        #[test]
        fn features_are_absent_off_or_on() {
            let (tx, rx) = ("tls-hw-tx-offload", "tls-hw-rx-offload");
            for masked in [false, true] {
                for (hw, active, expected) in [
                    (&[][..], &[][..], (Feature::Absent, Feature::Absent)),
                    (&[(tx, true), (rx, true)], &[(rx, false)], (Feature::Off, Feature::Off)),
                    (&[(tx, true), (rx, true)], &[(tx, true)], (Feature::On, Feature::Off)),
                    // A fixed feature: on, and not switchable.
                    (&[(tx, false)], &[(tx, true)], (Feature::On, Feature::Absent)),
                    (&[("tx-checksum-ipv4", true)], &[("tx-checksum-ipv4", true)], (Feature::Absent, Feature::Absent)),
                ] {
                    let nic = nic(&answer(masked, hw, active)).expect("an interface");
                    assert_eq!((nic.tx, nic.rx), expected, "{masked} {hw:?} {active:?}");
                    assert_eq!((nic.name.as_str(), nic.record), ("eth0", Feature::Absent), "wanted is not active");
                }
            }
        }

        #[test]
        fn the_family_has_a_number() {
            let answer = [
                vec![1, 2, 0, 0],
                attribute(CTRL_ATTR_FAMILY_NAME, b"ethtool\0"),
                attribute(CTRL_ATTR_FAMILY_ID, &21_u16.to_ne_bytes()),
            ]
            .concat();
            assert_eq!(family(&answer), Some(21));
            assert_eq!(family(&answer[..16]), None);
            assert_eq!(family(&[]), None);
        }

        #[test]
        fn broken_answers_are_skipped() {
            break_every_byte(&answer(true, &[("tls-hw-record", true)], &[("tls-hw-record", true)]), |body| {
                let _ = (nic(body), family(body));
            });
        }
    }
}
