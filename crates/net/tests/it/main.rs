//! Sockets on the loopback interface.

mod http3;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sealion_net::{Batch, Group, ReceiveBuffers, Steering, UdpOptions, UdpSocket};
use sealion_quic::{MAX_BATCH, Route, SHARES};

fn bind(address: IpAddr) -> UdpSocket {
    UdpSocket::bind(SocketAddr::new(address, 0), UdpOptions::default()).unwrap()
}

fn wait(socket: &UdpSocket) {
    let mut waiting = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    poll(&mut waiting, PollTimeout::NONE).unwrap();
}

/// Payload, sender, local address, ECN mark.
type Datagram = (Vec<u8>, SocketAddr, Option<IpAddr>, u8);

/// Waits for `count` datagrams.
fn receive(socket: &UdpSocket, count: usize) -> (Vec<Datagram>, usize) {
    let (mut datagrams, mut buffers, mut calls) = (Vec::new(), ReceiveBuffers::default(), 0);
    while datagrams.len() < count {
        wait(socket);
        let received = socket.receive(&mut buffers, |datagram| {
            datagrams.push((datagram.bytes.to_vec(), datagram.remote, datagram.local, datagram.ecn));
        });
        match received {
            Ok(_) => calls += 1,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    }
    (datagrams, calls)
}

#[test]
fn a_batch_arrives_as_its_datagrams_with_mark_and_addresses() {
    for address in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        let (sender, receiver) = (bind(address), bind(address));
        let bytes: Vec<u8> = (0..12_345).map(|at| (at / 1200) as u8).collect();
        let remote = receiver.local_addr().unwrap();
        let segment = Some(1200).filter(|_| sender.max_segments() >= 11);
        assert_eq!(segment, Some(1200), "Linux has GSO since 4.18");
        sender.send(&Batch { remote, local: Some(address), ecn: 0b10, bytes: &bytes, segment }).unwrap();
        let (datagrams, calls) = receive(&receiver, 11);
        let sent: Vec<_> = bytes.chunks(1200).map(<[u8]>::to_vec).collect();
        assert_eq!(datagrams.iter().map(|datagram| datagram.0.clone()).collect::<Vec<_>>(), sent);
        let from = sender.local_addr().unwrap();
        for (_, remote, local, ecn) in datagrams {
            assert_eq!((remote, local, ecn), (from, Some(address), 0b10));
        }
        assert!(receiver.receives_batches() && calls < 11, "{calls} calls");
    }
}

/// 127.0.0.2 is local, too: the reply to a datagram must come from where it went.
#[test]
fn a_datagram_leaves_from_the_given_address() {
    let any = bind(Ipv4Addr::UNSPECIFIED.into());
    let client = bind(Ipv4Addr::LOCALHOST.into());
    let address = IpAddr::from([127, 0, 0, 2]);
    let local = Some(address);
    let port = any.local_addr().unwrap().port();
    let to = SocketAddr::new(address, port);
    client.send(&Batch { remote: to, local: None, ecn: 0, bytes: b"a", segment: None }).unwrap();
    let (datagrams, _) = receive(&any, 1);
    assert_eq!((datagrams[0].2, datagrams[0].3), (local, 0));
    any.send(&Batch { remote: datagrams[0].1, local, ecn: 0, bytes: b"b", segment: None }).unwrap();
    assert_eq!(receive(&client, 1).0[0].1, to);
}

#[test]
fn a_socket_does_not_block() {
    let socket = bind(Ipv4Addr::LOCALHOST.into());
    let error = socket.receive(&mut ReceiveBuffers::default(), |_| {}).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn a_datagram_that_is_too_large_is_dropped() {
    let (sender, receiver) = (bind(Ipv4Addr::LOCALHOST.into()), bind(Ipv4Addr::LOCALHOST.into()));
    let remote = receiver.local_addr().unwrap();
    let send = |bytes: &[u8]| sender.send(&Batch { remote, local: None, ecn: 0, bytes, segment: None });
    send(&[0; 65_508]).unwrap();
    send(b"next").unwrap();
    assert_eq!(receive(&receiver, 1).0[0].0, b"next");
}

/// [`MAX_BATCH`] is the kernel's bound: it sends none of a batch that is larger.
#[test]
fn the_largest_batch_arrives() {
    for address in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        let (sender, receiver) = (bind(address), bind(address));
        let remote = receiver.local_addr().unwrap();
        let send = |segment: usize, bytes: &[u8]| {
            sender.send(&Batch { remote, local: None, ecn: 0, bytes, segment: Some(segment) }).unwrap();
        };
        // More than the buffer of a receiver holds would be lost, too.
        let segment = 2000;
        let fitting = vec![1; MAX_BATCH / segment * segment];
        send(segment, &[0; 65_536]);
        send(segment, &fitting);
        let datagrams = receive(&receiver, MAX_BATCH / segment).0;
        assert!(datagrams.iter().all(|datagram| datagram.0 == fitting[..segment]), "of the second batch alone");
        assert_eq!(sender.max_segments(), 64, "GSO stays on");
    }
}

#[test]
fn buffers_are_as_large_as_the_kernel_permits() {
    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let options = UdpOptions { group: Group::Own, receive_buffer: Some(8192), send_buffer: Some(8192) };
    let small = UdpSocket::bind(address, options).unwrap().receive_buffer().unwrap();
    assert!(small < bind(address.ip()).receive_buffer().unwrap(), "{small}");
}

#[test]
fn a_group_of_its_own_takes_no_datagrams_of_another() {
    let own = UdpOptions { group: Group::Own, ..UdpOptions::default() };
    let other = bind(Ipv4Addr::LOCALHOST.into());
    let address = other.local_addr().unwrap();
    assert_eq!(UdpSocket::bind(address, own).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    drop(other);
    let _first = UdpSocket::bind(address, own).unwrap();
    assert_eq!(UdpSocket::bind(address, own).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    UdpSocket::bind(address, UdpOptions::default()).unwrap();
}

/// A packet with a connection ID whose first word is `word`.
fn packet(first: u8, word: u32) -> Vec<u8> {
    let before: &[u8] = if first & 0x80 != 0 { &[0, 0, 0, 1, 8] } else { &[] };
    [&[first], before, &word.to_be_bytes(), &[7; 20]].concat()
}

/// The program of the kernel and `Route::steer` agree, in all shares.
#[test]
fn datagrams_reach_the_owner_of_their_connection() {
    const WORKERS: u32 = 3;
    let own = UdpOptions { group: Group::Own, ..UdpOptions::default() };
    let first = UdpSocket::bind(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0), own).unwrap();
    let remote = first.local_addr().unwrap();
    let mut group = vec![first];
    group.extend((1..SHARES * WORKERS).map(|_| UdpSocket::bind(remote, UdpOptions::default()).unwrap()));
    let client = bind(Ipv4Addr::LOCALHOST.into());
    for share in 0..SHARES {
        let route = Route { worker: 0, workers: WORKERS, share };
        // Any member replaces the program of the group.
        let steering = Steering { workers: WORKERS, shares: SHARES, share };
        steering.attach(&group[share as usize]).unwrap();
        for word in [0, 1, 2, 3, 4, 5, 6, 77, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
            for first in [0x40, 0x7f, 0xc0, 0xd1, 0xe2, 0xf3] {
                let bytes = packet(first, word);
                client.send(&Batch { remote, local: None, ecn: 0, bytes: &bytes, segment: None }).unwrap();
                let owner = route.steer(&bytes).unwrap();
                assert_eq!(receive(&group[owner as usize], 1).0[0].0, bytes, "{first:x} {word}");
            }
        }
    }
}

#[test]
fn steering_needs_a_group_and_workers() {
    let alone = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let error = Steering { workers: 1, shares: 2, share: 0 }.attach(&alone).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    let member = bind(Ipv4Addr::LOCALHOST.into());
    let error = Steering { workers: 0, shares: 2, share: 0 }.attach(&member).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}
