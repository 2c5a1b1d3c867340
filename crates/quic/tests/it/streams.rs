//! Streams: all bytes arrive, in order, whatever the network does.

use sealion_quic::{Congestion, Event, Limits, MAX_BATCH, Read, StreamId};

use crate::network::{Network, code};

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

fn echo(network: &mut Network, lengths: &[usize]) {
    let client = network.connect();
    network.run(|network| network.clients[client].is_connected());
    let streams: Vec<_> = lengths.iter().map(|length| network.clients[client].send(content(*length))).collect();
    network.run(|network| network.clients[client].received.values().all(|(_, ended)| *ended));
    for (stream, length) in streams.iter().zip(lengths) {
        assert!(network.clients[client].received[stream].0 == content(*length), "{length} bytes");
    }
}

#[test]
fn streams_come_back_in_full() {
    let mut network = Network::new(Limits::default());
    echo(&mut network, &[0, 1, 1000, 100_000, 1_000_000]);
    let batches: Vec<_> =
        network.server.transmits.iter().filter_map(|t| t.segment.map(|segment| (segment, t.size))).collect();
    assert!(batches.iter().any(|(segment, size)| size > &(5 * segment)), "large responses leave in batches");
    assert!(batches.iter().all(|(segment, size)| *segment <= 1452 && *size <= 10 * segment));
    assert!(network.server.transmits.iter().all(|transmit| transmit.local.is_some() && transmit.ecn.is_some()));
}

/// The kernel takes 64 datagrams in a batch, and sends none of a batch that is larger than a datagram may be.
#[test]
fn a_batch_is_no_larger_than_a_datagram_may_be() {
    for congestion in [Congestion::Cubic, Congestion::Bbr] {
        let mut network = Network::new(Limits { congestion, ..Limits::default() });
        // So short a round trip that the pacer lets whole windows leave at once.
        (network.segments, network.delay) = (64, 1);
        echo(&mut network, &[1_000_000; 3]);
        let largest = network.server.transmits.iter().map(|transmit| transmit.size).max();
        assert!(
            largest.is_some_and(|size| size > MAX_BATCH - 1452 && size <= MAX_BATCH),
            "{congestion:?}: {largest:?}"
        );
    }
}

#[test]
fn streams_come_back_in_full_over_a_bad_network() {
    let mut lost = 0;
    for seed in 1..12 {
        let congestion = if seed % 2 == 0 { Congestion::Bbr } else { Congestion::Cubic };
        let mut network = Network::new(Limits { congestion, ..Limits::default() });
        network.random.0 = seed;
        (network.loss, network.jitter) = (seed * 10, seed * 3);
        echo(&mut network, &[0, 10, 30_000, 150_000]);
        lost += network.server.endpoint.totals().lost_bytes;
    }
    assert!(lost > 11 * 1200, "{lost} bytes");
}

#[test]
fn a_client_may_change_its_address() {
    let mut network = Network::new(Limits::default());
    let client = network.connected();
    let first = network.clients[client].send(content(10));
    network.run(|network| network.clients[client].received[&first].1);
    network.rebind(client);
    let second = network.clients[client].send(content(200_000));
    network.run(|network| network.clients[client].received[&second].1);
    let key = network.server.keys[0];
    assert_eq!(network.server.endpoint.connection(key).unwrap().remote().port(), 6000);
}

#[test]
fn streams_are_told_in_the_order_of_their_numbers() {
    let mut network = Network::new(Limits::default());
    network.jitter = 30;
    let client = network.connected();
    for _ in 0..20 {
        network.clients[client].send(content(1200));
    }
    network.run(|network| network.clients[client].received.values().all(|(_, ended)| *ended));
    let opened = network.server.events.iter().filter_map(|(_, event)| match event {
        Event::Opened(stream) => Some(stream.get()),
        _ => None,
    });
    assert_eq!(opened.collect::<Vec<_>>(), (0..20).map(|number| number * 4).collect::<Vec<_>>());
    assert!(StreamId::new(1 << 62).is_none() && StreamId::new(0).unwrap().is_bidirectional());
}

#[test]
fn codes_of_resets_and_stops_arrive_on_both_sides() {
    let mut network = Network::new(Limits::default());
    let client = network.connected();
    // The client reads no more: the server is told, and resets.
    let stream = network.clients[client].send(content(500_000));
    network.run(|network| network.clients[client].received[&stream].0.len() > 1000);
    network.clients[client].connection.recv_stream(stream).stop(code(0x10c)).unwrap();
    let stopped = |event: &Event| matches!(event, Event::Stopped { code: 0x10c, .. });
    network.run(|network| network.server.events.iter().any(|(_, event)| stopped(event)));
    // The client resets what it sends.
    let stream = network.clients[client].connection.streams().open(quinn_proto::Dir::Bi).unwrap();
    network.clients[client].connection.send_stream(stream).write(b"abc").unwrap();
    network.clients[client].connection.send_stream(stream).reset(code(7)).unwrap();
    let id = StreamId::new(stream.index() * 4).unwrap();
    network.server.events.clear();
    network.run(|network| network.server.events.iter().any(|(_, event)| *event == Event::Readable(id)));
    // The server resets and stops.
    let stream = network.clients[client].send(Vec::new());
    network.clients[client].received.remove(&stream);
    let open = network.clients[client].connection.streams().open(quinn_proto::Dir::Bi).unwrap();
    network.clients[client].connection.send_stream(open).write(b"abc").unwrap();
    network.clients[client].received.insert(open, Default::default());
    let (id, key) = (StreamId::new(open.index() * 4).unwrap(), network.server.keys[0]);
    network.run(|network| network.server.events.iter().any(|(_, event)| *event == Event::Opened(id)));
    let mut connection = network.server.endpoint.connection(key).unwrap();
    connection.reset(id, 0x102);
    connection.stop(id, 0x100);
    assert_eq!(connection.read(id, |_: Read| true), None, "it was stopped");
    network.run(|network| network.clients[client].resets.contains(&0x102));
    let stopped = |event: &quinn_proto::Event| {
        let quinn_proto::Event::Stream(event) = event else { return false };
        *event == quinn_proto::StreamEvent::Stopped { id: open, error_code: code(0x100) }
    };
    network.run(|network| network.clients[client].events.iter().any(stopped));
}

#[test]
fn a_server_opens_streams_of_its_own() {
    let mut network = Network::new(Limits::default());
    let client = network.connected();
    let key = network.server.keys[0];
    let mut connection = network.server.endpoint.connection(key).unwrap();
    let stream = connection.open_uni().unwrap();
    assert_eq!(stream.get(), 3);
    connection.set_level(stream, i32::MAX);
    assert_eq!(connection.write_copy(stream, b"settings"), Ok(8));
    let id = quinn_proto::StreamId::new(quinn_proto::Side::Server, quinn_proto::Dir::Uni, 0);
    network.clients[client].received.insert(id, Default::default());
    network.run(|network| network.clients[client].received[&id].0 == b"settings");
}

/// The higher level arrives first, whatever was written first.
#[test]
fn levels_order_what_is_sent() {
    for level in [-1, 1] {
        let mut network = Network::new(Limits { send_window: 10 << 20, ..Limits::default() });
        let client = network.connected();
        let key = network.server.keys[0];
        let mut connection = network.server.endpoint.connection(key).unwrap();
        let streams = [(); 2].map(|()| connection.open_uni().unwrap());
        connection.set_level(streams[1], level);
        for stream in streams {
            assert_eq!(connection.write_copy(stream, &content(400_000)), Ok(400_000));
            connection.finish(stream).unwrap();
        }
        let ids = [0, 1].map(|at| quinn_proto::StreamId::new(quinn_proto::Side::Server, quinn_proto::Dir::Uni, at));
        ids.iter().for_each(|id| drop(network.clients[client].received.insert(*id, Default::default())));
        network.run(|network| network.clients[client].received.values().any(|(_, ended)| *ended));
        let ended = ids.map(|id| network.clients[client].received[&id].1);
        assert_eq!(ended, [level < 0, level > 0]);
        network.run(|network| network.clients[client].received.values().all(|(_, ended)| *ended));
    }
}

/// A window beyond what a short path carries only queues.
#[test]
fn a_near_path_has_a_small_window() {
    for congestion in [Congestion::Cubic, Congestion::Bbr] {
        let [near, far] = [0, 10].map(|delay| {
            let mut network = Network::new(Limits { congestion, ..Limits::default() });
            network.delay = delay;
            echo(&mut network, &[4_000_000]);
            let key = network.server.keys[0];
            network.server.endpoint.connection(key).unwrap().congestion_window()
        });
        assert!(near <= 256 << 10 && far > 256 << 10, "{congestion:?}: {near}, {far}");
    }
}
