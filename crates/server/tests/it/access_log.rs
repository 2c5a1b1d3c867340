//! One line for each response, with everything in it, wherever it goes.

use std::fs;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use sealion_testkit::server::{Server, Signal};
use sealion_testkit::{Suite, http};

use crate::support::{
    LARGE, LogLine, PROGRAM, Site, Tmpfs, access_line, access_lines, begin, exchange, messages, wait_for_message,
    wait_until,
};

const FIELDS: [&str; 13] =
    ["time", "peer", "method", "target", "status", "bytes", "ms", "tls", "suite", "group", "resumed", "path", "why"];

/// Method, target and fields of a request, and status and body bytes of its line.
type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], &'a str, &'a str);

#[test]
fn every_response_has_a_line_with_every_field() {
    let site = Site::new();
    site.add("f", "content");
    site.add("dir/f", "");
    let server = site.serve_from_user_space(&[]);
    let mut client = site.connect(&server);
    let etag = http::get(&mut client, "/f").expect("an answer").field("etag").expect("a tag").to_owned();
    let requests: [Case<'_>; 8] = [
        ("GET", "/f", &[], "200", "7"),
        ("HEAD", "/f", &[], "200", "0"),
        ("GET", "/f", &[("If-None-Match", &etag)], "304", "0"),
        ("GET", "/f", &[("Range", "bytes=1-3")], "206", "3"),
        ("GET", "/f", &[("Range", "bytes=9-")], "416", "26"),
        ("GET", "/none?q=\"a\\b", &[], "404", "14"),
        ("GET", "/dir", &[], "301", "22"),
        ("POST", "/f", &[], "405", "23"),
    ];
    for (n, (method, target, fields, status, bytes)) in requests.into_iter().enumerate() {
        http::request(&mut client, method, target, fields).expect("an answer");
        let line = access_line(&server, n + 2);
        assert_eq!(line.names(), FIELDS, "{}", line.text);
        let shown = [line.get("method"), line.get("target"), line.get("status"), line.get("bytes")];
        assert_eq!(shown, [method, target, status, bytes], "{}", line.text);
        assert_eq!(line.get("peer"), client.socket().local_addr().expect("an address").to_string());
        assert_eq!((line.get("tls"), line.get("suite")), ("1.3", "TLS_AES_128_GCM_SHA256"), "{}", line.text);
        assert_eq!((line.get("resumed"), line.way()), ("no", ("user", "never")), "{}", line.text);
        let millis: f64 = line.get("ms").parse().expect("a number");
        assert!(millis >= 0.0);
        let time = line.get("time");
        assert!(time.len() == 24 && time.ends_with('Z') && time.as_bytes()[10] == b'T', "{time}");
    }
}

#[test]
fn what_is_no_request_has_a_line_too() {
    let site = Site::new();
    let server = site.serve_from_user_space(&[]);
    exchange(&mut site.connect(&server), b"nonsense\r\n\r\n").assert_orderly();
    let line = access_line(&server, 1);
    assert_eq!([line.get("method"), line.get("target"), line.get("status")], ["-", "-", "400"], "{}", line.text);
}

#[test]
fn lines_name_the_suite_and_a_resumed_session() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve_from_user_space(&[]);
    let mut lines = 0;
    for suite in Suite::all() {
        let connector = site.connector(suite);
        for resumed in ["no", "yes"] {
            let mut client = connector.connect(server.address());
            http::get(&mut client, "/f").expect("an answer");
            lines += 1;
            let line = access_line(&server, lines);
            let offered = client.info().suite.replace("TLS13_", "TLS_");
            assert_eq!((line.get("suite"), line.get("resumed")), (offered.as_str(), resumed), "{}", line.text);
            assert_eq!(line.get("tls"), if suite.to_string().contains("1.2") { "1.2" } else { "1.3" }, "{suite}");
        }
    }
}

#[test]
fn a_client_that_goes_away_is_in_the_line() {
    let site = Site::new();
    site.add_pattern("large", LARGE);
    let server = site.serve_from_user_space(&[]);
    let mut client = site.connect_slow_reader(&server);
    begin(&mut client, "/large");
    client.reset().expect("the connection is reset");
    let line = access_line(&server, 1);
    let sent: u64 = line.get("bytes").parse().expect("a number");
    assert!(sent < LARGE && line.get("aborted").contains("connection lost"), "{}", line.text);
    assert_eq!(line.get("status"), "200");
}

#[test]
fn a_file_is_appended_to_and_whole_at_the_end() {
    let site = Site::new();
    site.add("f", "content");
    let log = site.outside().join("access.log");
    for run in 1..=2 {
        let name = log.display().to_string();
        let mut server = site.serve_from_user_space(&["--access-log", &name]);
        let mut client = site.connect(&server);
        for _ in 0..100 {
            http::get(&mut client, "/f").expect("an answer");
        }
        server.signal(Signal::TERM);
        client.read_to_end().expect("the server closes").assert_orderly();
        drop(client);
        assert_eq!(server.wait().code(), Some(0));
        assert!(server.lines().iter().all(|line| line.stderr), "standard output stays empty");
        let text = std::fs::read_to_string(&log).expect("the log is text");
        assert_eq!(text.lines().count(), run * 100);
        assert!(text.lines().all(|line| LogLine::parse(line).names() == FIELDS));
    }
}

/// Standard output is an unread pipe, as behind a pager: responses go on, and so does the end.
#[test]
fn a_destination_that_takes_nothing_holds_up_nothing() {
    let site = Site::new();
    site.add("f", "content");
    let fifo = site.outside().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a FIFO");
    let _never_read = std::fs::File::options().read(true).write(true).open(&fifo).expect("it opens");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "log=$1; shift; exec \"$@\" >\"$log\"", "sh"]).arg(&fifo).arg(PROGRAM);
    command.args(site.arguments(&["--ktls", "never"]));
    let mut server = Server::spawn(command);
    let mut client = site.connect(&server);
    // More than a pipe and the writer's buffer hold.
    for _ in 0..1000 {
        http::get(&mut client, "/f").expect("an answer");
    }
    server.signal(Signal::TERM);
    client.read_to_end().expect("the server closes").assert_orderly();
    drop(client);
    assert_eq!(server.wait().code(), Some(0));
    wait_for_message(&server, "the access log lost its last lines");
}

#[test]
fn off_means_off() {
    let site = Site::new();
    site.add("f", "content");
    let mut server = site.serve_from_user_space(&["--access-log", "off"]);
    let mut client = site.connect(&server);
    http::get(&mut client, "/f").expect("an answer");
    server.signal(Signal::TERM);
    client.read_to_end().expect("the server closes").assert_orderly();
    drop(client);
    server.wait();
    assert!(server.lines().iter().all(|line| line.stderr));
}

#[test]
fn the_default_is_standard_output() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve(&[]);
    http::get(&mut site.connect(&server), "/f").expect("an answer");
    assert_eq!(access_lines(&server, 1)[0].names(), FIELDS);
}

/// Requests with these fields, one line for each, all at the end of the file.
fn logged(site: &Site, arguments: &[&str], requests: &[&[(&str, &str)]]) -> Vec<String> {
    let log = site.outside().join("fields.log");
    let name = log.display().to_string();
    let mut server = site.serve_from_user_space(&[&["--access-log", &name], arguments].concat());
    let mut client = site.connect(&server);
    for fields in requests {
        http::request(&mut client, "GET", "/f?x=\"1", fields).expect("an answer");
    }
    server.signal(Signal::TERM);
    client.read_to_end().expect("the server closes").assert_orderly();
    drop(client);
    assert_eq!(server.wait().code(), Some(0));
    let text = std::fs::read_to_string(&log).expect("the log is text");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn fields_are_chosen_in_their_order() {
    let site = Site::new();
    site.add("f", "content");
    let fields = "status,user_agent,host,referer,site,moved_at,protocol,user";
    let requests: [&[(&str, &str)]; 2] = [&[("User-Agent", "a\"b\u{85}"), ("referer", "https://r/")], &[]];
    let lines = logged(&site, &["--access-log-fields", fields], &requests);
    let host = "host=\"localhost\"";
    let expected = [
        "status=200 user_agent=\"a\\\"b\\u{85}\" host=\"localhost\" referer=\"https://r/\" site=\"default\" moved_at=- protocol=HTTP/1.1 user=-",
        "status=200 user_agent=- host=\"localhost\" referer=- site=\"default\" moved_at=- protocol=HTTP/1.1 user=-",
    ];
    assert!(lines.iter().all(|line| line.contains(host)), "{lines:#?}");
    assert_eq!(lines, expected);
}

#[test]
fn json_is_an_object_a_line() {
    let site = Site::new();
    site.add("f", "content");
    let lines = logged(&site, &["--access-log-format", "json"], &[&[], &[("Range", "bytes=1-2")]]);
    let objects: Vec<serde_json::Value> = lines.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(objects.len(), 2);
    let names: Vec<&String> = objects[0].as_object().expect("an object").keys().collect();
    let mut sorted = FIELDS.to_vec();
    sorted.sort_unstable();
    assert!(names == FIELDS || names == sorted, "{names:?}");
    assert_eq!((&objects[0]["status"], &objects[1]["status"]), (&200.into(), &206.into()));
    assert_eq!((&objects[0]["target"], &objects[1]["bytes"]), (&"/f?x=\"1".into(), &2.into()));
    assert_eq!((&objects[0]["resumed"], &objects[0]["ms"].is_number()), (&false.into(), &true));
}

/// The format that log analysers know: nine columns, of which the client fills three.
#[test]
fn combined_has_the_columns_of_nginx() {
    let site = Site::new();
    site.add("f", "content");
    let lines = logged(&site, &["--access-log-format", "combined"], &[&[("User-Agent", "curl/8 \"x\"")]]);
    let (before, after) = lines[0].split_once('[').expect("a time");
    let (time, after) = after.split_once("] ").expect("its end");
    assert_eq!(before, "127.0.0.1 - - ");
    assert!(time.len() == 26 && time.ends_with(" +0000") && time.as_bytes()[2] == b'/', "{time}");
    assert_eq!(after, "\"GET /f?x=\\x221 HTTP/1.1\" 200 7 \"-\" \"curl/8 \\x22x\\x22\"");
}

#[test]
fn a_file_that_was_moved_away_is_opened_anew_on_sigusr1() {
    let site = Site::new();
    site.add("f", "content");
    let log = site.outside().join("access.log");
    let name = log.display().to_string();
    let server = site.serve_from_user_space(&["--access-log", &name]);
    let mut client = site.connect(&server);
    http::get(&mut client, "/f").expect("an answer");
    wait_until("the line is written", || std::fs::read_to_string(&log).is_ok_and(|text| text.ends_with('\n')));
    let old = site.outside().join("access.log.1");
    std::fs::rename(&log, &old).expect("it is moved");
    server.signal(Signal::USR1);
    wait_for_message(&server, "the access log was reopened");
    http::get(&mut client, "/f?second").expect("an answer");
    wait_until("the line is in the new file", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.lines().count() == 1)
    });
    let old = std::fs::read_to_string(&old).expect("it is there");
    assert!(old.lines().count() == 1 && !old.contains("second"), "{old}");
}

#[test]
fn lines_that_wait_when_the_file_is_reopened_are_in_the_old_one() {
    let site = Site::new();
    site.add("f", "content");
    let log = site.outside().join("access.log");
    let name = log.display().to_string();
    let mut server = site.serve_from_user_space(&["--access-log", &name, "--access-log-flush-after", "1h"]);
    let mut client = site.connect(&server);
    (0..20).for_each(|_| drop(http::get(&mut client, "/f?old").expect("an answer")));
    // The line of a response comes after its last byte, but before the next response: this one's may be in either file.
    http::get(&mut client, "/f?between").expect("an answer");
    let old = site.outside().join("access.log.1");
    std::fs::rename(&log, &old).expect("it is moved");
    server.signal(Signal::USR1);
    wait_for_message(&server, "the access log was reopened");
    (0..10).for_each(|_| drop(http::get(&mut client, "/f?new").expect("an answer")));
    server.signal(Signal::TERM);
    client.read_to_end().expect("the server closes").assert_orderly();
    drop(client);
    assert_eq!(server.wait().code(), Some(0));
    for (path, lines, query) in [(old, 20, "?old"), (log, 10, "?new")] {
        let text = std::fs::read_to_string(&path).expect("it is there");
        let others = text.lines().filter(|line| !line.contains("?between"));
        assert_eq!(others.clone().filter(|line| line.contains(query)).count(), lines, "{}", path.display());
        assert_eq!(others.count(), lines, "{}", path.display());
    }
}

#[test]
fn a_sample_has_every_error() {
    let site = Site::new();
    site.add("f", "content");
    let mut server = site.serve_from_user_space(&["--access-log-sample", "1/10", "--workers", "1"]);
    let mut client = site.connect(&server);
    for n in 0..100 {
        http::get(&mut client, "/f").expect("an answer");
        if n % 5 == 0 {
            http::get(&mut client, "/none").expect("an answer");
        }
    }
    server.signal(Signal::TERM);
    client.read_to_end().expect("the server closes").assert_orderly();
    drop(client);
    assert_eq!(server.wait().code(), Some(0));
    let lines = access_lines(&server, 30);
    let with = |status| lines.iter().filter(|line| line.get("status") == status).count();
    assert_eq!((with("200"), with("404")), (10, 20));
}

/// A file system of 64 KiB runs full, and is emptied: requests are answered throughout, what is lost is told and counted, and
/// every line in the file begins as a line does.
#[test]
fn a_full_disk_loses_lines_and_nothing_else() {
    let site = Site::new();
    site.add("f", "content");
    let disk = Tmpfs::mount(&site.outside().join("disk"), "64k");
    let log = disk.0.join("access.log");
    let filler = disk.0.join("filler");
    std::fs::write(&filler, vec![b'x'; 40 << 10]).expect("there is room for it");
    let name = log.display().to_string();
    let server = site.serve_from_user_space(&["--access-log", &name]);
    let mut client = site.connect(&server);
    let mut sent = 0;
    while messages(&server, "the access log cannot be written") == 0 {
        assert!(sent < 5000, "64 KiB do not run full");
        http::get(&mut client, "/f").expect("an answer");
        sent += 1;
    }
    http::get(&mut client, "/f").expect("requests go on");
    std::fs::remove_file(&filler).expect("it is removed");
    let mut tried = 0;
    while messages(&server, "the access log is written again") == 0 {
        assert!(tried < 5000, "the log does not go on");
        http::get(&mut client, "/f").expect("an answer");
        tried += 1;
        // The message may come late, and the 40 KiB that are free again must not be full by then.
        std::thread::sleep(Duration::from_millis(5));
    }
    http::get(&mut client, "/f?last").expect("an answer");
    let last = || std::fs::read_to_string(&log).is_ok_and(|text| text.ends_with('\n') && text.contains("/f?last"));
    wait_until("the last line is written", last);
    let text = std::fs::read_to_string(&log).expect("text");
    let whole = text.lines().filter(|line| LogLine::parse(line).names() == FIELDS).count();
    assert!(text.lines().all(|line| line.starts_with("time=") && line.matches("time=").count() == 1), "{text}");
    assert!(whole + 1 >= text.lines().count(), "one line at most is cut");
}

#[test]
fn syslog_takes_a_datagram_a_line() {
    let site = Site::new();
    site.add("f", "content");
    let path = site.outside().join("log.sock");
    let syslog = std::os::unix::net::UnixDatagram::bind(&path).expect("a socket");
    syslog.set_read_timeout(Some(sealion_testkit::PATIENCE)).expect("a timeout");
    let server = site.serve_from_user_space(&["--access-log", &format!("syslog:{}", path.display())]);
    http::get(&mut site.connect(&server), "/f").expect("an answer");
    let mut buffer = [0; 2000];
    let len = syslog.recv(&mut buffer).expect("a message");
    let message = String::from_utf8(buffer[..len].to_vec()).expect("text");
    // As syslog(3) writes it: a daemon of this machine finds the program's name nowhere else.
    let (head, line) = message.split_once(": ").expect("a name and a line");
    assert_eq!(head, format!("<190>sealion[{}]", server.pid()));
    assert_eq!(LogLine::parse(line).names(), FIELDS);
}

#[test]
fn a_collector_takes_messages_of_rfc_5424() {
    let site = Site::new();
    site.add("f", "content");
    let syslog = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    syslog.set_read_timeout(Some(sealion_testkit::PATIENCE)).expect("a timeout");
    let address = syslog.local_addr().expect("an address");
    let server = site.serve_from_user_space(&["--access-log", &format!("syslog:{address}")]);
    http::get(&mut site.connect(&server), "/f").expect("an answer");
    let mut buffer = [0; 2000];
    let len = syslog.recv(&mut buffer).expect("a message");
    let message = String::from_utf8(buffer[..len].to_vec()).expect("text");
    // §6: PRI VERSION TIMESTAMP HOSTNAME APP-NAME PROCID MSGID SD MSG
    let words: Vec<&str> = message.splitn(8, ' ').collect();
    assert_eq!((words[0], words[3], words[5], words[6]), ("<190>1", "sealion", "access", "-"), "{message}");
    assert_eq!(words[4], server.pid().to_string());
    assert_eq!(LogLine::parse(words[7]).names(), FIELDS);
}

#[test]
fn the_coding_of_a_body_is_named() {
    let site = Site::new();
    site.add("f", "content");
    site.add("f.gz", "stands for what gzip makes of it");
    let config = site.config("precompressed = ['gzip']").table("[access_log]\nfields = ['status', 'encoding']");
    let server = config.serve_from_user_space();
    let mut client = site.connect(&server);
    for accepted in ["gzip", "identity"] {
        http::request(&mut client, "GET", "/f", &[("Accept-Encoding", accepted)]).expect("an answer");
    }
    let told = server.wait_for_lines(2, "a line of the log", |line| !line.stderr);
    let told: Vec<&str> = told.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(told, ["status=200 encoding=gzip", "status=200 encoding=-"]);
}

#[test]
fn a_site_can_stay_out_of_the_log() {
    let site = Site::new();
    site.add("f", "content");
    let quiet = site.config("names = ['quiet.example']\naccess_log = false");
    let server = quiet.site("root", &[&site.pki], "default = true").serve_from_user_space();
    let mut client = site.connect(&server);
    for host in ["quiet.example", "other.example", "quiet.example", "other.example"] {
        let request = format!("GET /f?{host} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        client.send(request.as_bytes()).expect("it is sent");
        client.read_until(b"content").expect("an answer");
    }
    let lines = access_lines(&server, 2);
    assert!(lines.iter().all(|line| line.get("target") == "/f?other.example"), "{lines:#?}");
}

#[test]
fn a_site_can_have_a_log_of_its_own_with_another_form() {
    let site = Site::new();
    site.add("f", "content");
    let table = "[access_log]\nflush_after = '0s'\nfields = ['site', 'target']\n";
    let own = |name: &str, log: &str| format!("names = ['{name}.example']\nlog = {{ {log} }}");
    let one = "to = 'one.log', format = 'json', fields = ['status', 'target'], rotate = { size = '1KiB' }";
    let pkis = [&site.pki];
    let config = site.config(&own("one", one)).site("root", &pkis, &own("two", "to = 'both.log'"));
    let config = config.site("root", &pkis, &own("three", "to = 'both.log'")).site("root", &pkis, "default = true");
    let server = config.table(table).serve_from_user_space();
    let mut client = site.connect(&server);
    let mut ask = |host: &str| {
        let request = format!("GET /f?{host} HTTP/1.1\r\nHost: {host}.example\r\n\r\n");
        client.send(request.as_bytes()).expect("it is sent");
        client.read_until(b"content").expect("an answer");
    };
    ["one", "two", "three", "other"].iter().for_each(|host| ask(host));
    let common = || server.wait_for_lines(1, "a line of the common log", |line| !line.stderr);
    assert_eq!(common()[0].text, "site=\"default\" target=\"/f?other\"");
    let read = |name: &str| std::fs::read_to_string(site.outside().join(name)).unwrap_or_default();
    let both = "site=\"two.example\" target=\"/f?two\"\nsite=\"three.example\" target=\"/f?three\"\n";
    wait_until("the lines are there", || read("one.log").ends_with('\n') && read("both.log") == both);
    assert_eq!(read("one.log"), "{\"status\":200,\"target\":\"/f?one\"}\n");

    // All are reopened and rotated.
    std::fs::rename(site.outside().join("both.log"), site.outside().join("both.log.1")).expect("it is ours");
    server.signal(Signal::USR1);
    wait_until("it is opened again", || site.outside().join("both.log").exists());
    ask("two");
    wait_until("a line", || read("both.log") == "site=\"two.example\" target=\"/f?two\"\n");
    (0..60).for_each(|_| ask("one"));
    let rotated = || {
        let entries =
            std::fs::read_dir(site.outside()).expect("it is there").map(|entry| entry.expect("an entry").file_name());
        entries.filter(|name| name.to_string_lossy().starts_with("one.log-")).count()
    };
    wait_until("it is rotated", || rotated() > 0);
    assert_eq!(common().len(), 1);
}

#[test]
fn a_log_of_a_site_that_cannot_be_is_refused() {
    let site = Site::new();
    for (log, common, words) in [
        ("to = 'off'", "", "write `access_log = false`"),
        ("to = 'one.log'", "to = 'one.log'", "one.log is where [access_log] writes"),
        ("to = 'one.log', rotate = {}", "", "site.log.rotate: says not when"),
        ("to = 'two.log', format = 'json'", "", "two sites write to two.log in different ways"),
        ("to = 'three.log' }\naccess_log = false #", "", "unused with `access_log = false`"),
    ] {
        let log = log.replace("access_log = false #", "access_log = false\nerror_pages = {");
        let config = site.config(&format!("names = ['a.example']\nlog = {{ {log} }}"));
        let config = config.site("root", &[&site.pki], "default = true\nlog = { to = 'two.log' }");
        let problems = config.table(&format!("[access_log]\n{common}\n")).problems();
        assert!(problems.contains(words), "{log}: {problems}");
    }
}

#[test]
fn the_server_rotates_its_file_and_loses_no_line() {
    let site = Site::new();
    site.add("f", "content");
    let table = "[access_log]\nto = 'access.log'\nflush_after = '0s'\nrotate = { size = '1KiB', keep = 1000 }\n";
    let server = site.config("").table(table).serve_from_user_space();
    let mut client = site.connect(&server);
    let files = |is_packed: bool| -> Vec<Vec<u8>> {
        let entries = std::fs::read_dir(site.outside()).expect("it is there").map(|entry| entry.expect("an entry"));
        let names = entries.filter(|entry| {
            let name = entry.file_name().into_string().expect("text");
            name.starts_with("access.log") && name.ends_with(".gz") == is_packed && !name.ends_with(".new")
        });
        // One that is gone meanwhile is read again under its other name.
        names.filter_map(|entry| std::fs::read(entry.path()).ok()).collect()
    };
    let has_line = |text: &[u8], n: usize| String::from_utf8_lossy(text).contains(&format!("/f?{n}.\""));
    // Each group is longer than the size, so that the first write after it rotates.
    for n in 0..80 {
        http::get(&mut client, &format!("/f?{n}.")).expect("an answer");
        if n % 20 == 19 {
            wait_until("the lines are written", || files(false).iter().any(|text| has_line(text, n)));
        }
    }
    wait_until("all rotated files but the last are compressed", || files(false).len() == 2 && files(true).len() >= 2);
    let mut texts = files(false);
    for packed in files(true) {
        let mut text = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*packed), &mut text).expect("gzip");
        texts.push(text);
    }
    for n in 0..80 {
        assert_eq!(texts.iter().filter(|text| has_line(text, n)).count(), 1, "{n}");
    }
}

#[test]
fn with_several_sites_a_line_names_its_own() {
    let site = Site::new();
    site.add("f", "content");
    let keys = "names = ['localhost']\ndefault = true\n";
    let config = site.config(keys).site("root", &[&site.pki], "names = ['other.example']\n");
    let server = config.serve_from_user_space();
    http::get(&mut site.connect(&server), "/f").expect("an answer");
    let line = access_line(&server, 1);
    assert_eq!((line.get("site"), line.get("host")), ("localhost", "localhost"), "{}", line.text);
}

#[test]
fn the_log_of_a_site_names_what_varies() {
    let site = Site::new();
    site.add("f", "content");
    let log = |file: &str| format!("log = {{ to = '{file}', flush_after = '0s' }}\n");
    let server = site
        .config(&format!("names = ['localhost', 'www.test']\n{}", log("several.log")))
        .site("root", &[&site.pki], &format!("names = ['one.test']\n{}", log("one.log")))
        .site("root", &[&site.pki], &format!("names = ['*.test']\n{}", log("any.log")))
        .site("root", &[&site.pki], &format!("names = ['a.example']\n{}", log("shared.log")))
        .site("root", &[&site.pki], &format!("names = ['b.example']\ndefault = true\n{}", log("shared.log")))
        .serve_from_user_space();
    let mut client = site.connect(&server);
    for (host, file, names) in [
        ("www.test", "several.log", &["host=www.test"][..]),
        ("one.test", "one.log", &[]),
        ("x.test", "any.log", &["host=x.test"]),
        ("a.example", "shared.log", &["site=a.example", "host=a.example"]),
    ] {
        http::request(&mut client, "GET", "/f", &[("Host", host)]).expect("an answer");
        let file = site.outside().join(file);
        wait_until("the line is written", || fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n')));
        let line = fs::read_to_string(&file).expect("a line");
        let named: Vec<&str> =
            line.split(' ').filter(|word| word.starts_with("site=") || word.starts_with("host=")).collect();
        let named: Vec<String> = named.iter().map(|word| word.replace('"', "")).collect();
        assert_eq!(named, names, "{line}");
    }
}

#[test]
fn a_check_warns_of_a_log_that_cannot_be_written() {
    let site = Site::new();
    let config = site.config("log = { to = 'gone/own.log' }").table("[access_log]\nto = '/no/such/access.log'");
    let output = config.check();
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("the access log /no/such/access.log cannot be written: the directory /no/such does not exist"),
        "{text}"
    );
    assert!(text.contains("/gone does not exist"), "{text}");
    fs::create_dir(site.outside().join("gone")).expect("a directory");
    let text = String::from_utf8(site.config("log = { to = 'gone/own.log' }").check().stdout).expect("text");
    assert!(!text.contains("does not exist"), "{text}");
}

#[test]
fn a_rotation_that_cannot_be_is_refused() {
    for (table, words) in [
        ("to = 'stdout'\nrotate = { size = '1MB' }", "applies to files only"),
        ("to = 'a.log'\nrotate = {}", "says not when"),
        ("to = 'a.log'\nrotate = { size = '1MB', keep = 0 }", "from 1 to 10000"),
    ] {
        let text = Site::new().config("").table(&format!("[access_log]\n{table}\n")).problems();
        assert!(text.contains("access_log.rotate") && text.contains(words), "{text}");
    }
}
