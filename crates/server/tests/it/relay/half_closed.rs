//! Connections and tunnels go on in the new process though one direction has ended.

use super::*;

/// A tunnel whose server sends `half` when the client has ended, and then what the test says.
fn half_closing(steps: Arc<Mutex<Receiver<Vec<u8>>>>) -> Upstream {
    Upstream::start(move |accepted| {
        let Some(request) = accepted.request() else { return };
        accepted.write(switch(&request).as_bytes());
        while accepted.read(1).is_some() {}
        accepted.write(b"half");
        while let Some(said) = next(&steps).filter(|said| !said.is_empty()) {
            accepted.write(&said);
        }
    })
}

#[test]
fn a_tunnel_whose_client_has_ended_goes_on_through_upgrades() {
    let site = Site::new();
    let (step, steps) = steps();
    let upstream = half_closing(steps);
    let mut relayed = Relayed::serve(&site, &upstream);
    let mut client = site.connect(&relayed.service.first);
    let key = "dGhlIHNhbXBsZSBub25jZQ==";
    let asks = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Key", key)];
    client.send(http::head("GET", "/chat", &asks).as_bytes()).expect("it leaves");
    client.read_until(b"\r\n\r\n").expect("a head");
    client.close_notify().expect("it leaves");
    assert_eq!(client.read(4).expect("the server has heard it"), b"half");
    for _ in 0..UPGRADES {
        relayed.upgrade(1);
        step.send(b"more".to_vec()).expect("the server waits");
        assert_eq!(client.read(4).expect("it goes on"), b"more");
    }
    step.send(Vec::new()).expect("the server waits");
    let ending = client.read_to_end().expect("an end");
    assert!(ending.data.is_empty());
    ending.assert_orderly();
    relayed.assert_first_ends();
    let line = access_line(&relayed.service.first, 1);
    assert_eq!((line.get("status"), line.get("bytes")), ("101", (4 + 4 * UPGRADES).to_string().as_str()));
    assert!(line.find("aborted").is_none());
}

/// Over HTTP/2, the stream has ended, and then the direction of its connection.
#[test]
fn a_tunnel_on_a_stream_that_the_client_has_ended_goes_on_through_upgrades() {
    let site = Site::new();
    let (step, steps) = steps();
    let upstream = half_closing(steps);
    let mut relayed = Relayed::serve(&site, &upstream);
    let mut http = Http2::connect(site.connector(Suite::TLS13), relayed.service.first.address(), &[]);
    http.ping();
    let chat = http.stream();
    http.send(&headers(chat, false, &connect_block("/chat", "websocket", &[])));
    http.send(&frame(DATA, END_STREAM, chat, b"last"));
    let has = |http: &Http2, length: usize| http.streams.get(&chat).is_some_and(|got| got.body.len() >= length);
    http.read_until("the server has heard it", |http| has(http, 4));
    for round in 1..=UPGRADES {
        if round == UPGRADES {
            http.credit = 0;
            http.client.close_notify().expect("it leaves");
        }
        relayed.upgrade(1);
        step.send(b"more".to_vec()).expect("the server waits");
        http.read_until("it goes on", |http| has(http, 4 + 4 * round));
    }
    step.send(Vec::new()).expect("the server waits");
    assert_eq!(http.response(chat).whole(), (200, &b"halfmoremoremore"[..]));
    relayed.assert_first_ends();
    assert!(access_line(&relayed.service.first, 1).find("aborted").is_none());
}
