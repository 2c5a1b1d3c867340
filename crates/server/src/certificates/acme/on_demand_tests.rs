use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::certificates::ChallengeKind;

/// Names that `ask` allows. No authority is reachable.
fn names(state: &std::path::Path, ask: &str) -> Names {
    let settings = Settings {
        directory: "https://127.0.0.1:9/".to_owned().into(),
        contact: Vec::new(),
        challenge: ChallengeKind::default(),
        profile: None,
        dns: None,
        state: state.to_owned(),
        root: None,
        external_account: None,
        making: tokio::sync::Mutex::default(),
    };
    Names {
        settings: Arc::new(settings),
        only: None,
        ask: SecretUrl::from(ask.to_owned()),
        tls: None,
        certificates: Cache::new(1),
        refused: Cache::new(1),
    }
}

fn job(names: &Arc<Names>) -> Job {
    let (outcome, _) = watch::channel(None);
    Job { names: names.clone(), site: names.site("a.test"), client: None, outcome, under_way: Arc::default() }
}

/// A service that allows the first name, and closes the connection of each later question.
fn once() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for (number, io) in listener.incoming().enumerate() {
            let mut io = io.unwrap();
            let _ = io.read(&mut [0; 4096]).unwrap();
            if number == 0 {
                io.write_all(b"HTTP/1.1 204 Yes\r\nConnection: close\r\n\r\n").unwrap();
            }
        }
    });
    url
}

/// The log while `inside` runs.
fn logged(inside: impl FnOnce()) -> String {
    let log = Arc::new(Mutex::new(Vec::new()));
    let writer = Log(log.clone());
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
    tracing::subscriber::with_default(subscriber, inside);
    String::from_utf8(log.lock().clone()).unwrap()
}

#[derive(Clone)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_name_that_waited_long_for_its_order_is_asked_about_again_and_the_log_says_what_failed() {
    let state = tempfile::tempdir().unwrap();
    let names = Arc::new(names(state.path(), &once()));
    let (process, job) = (OnDemand::default(), job(&names));
    let bounds = Bounds { fresh: Duration::ZERO, ..Bounds::default() };
    let (alpn, http) = (Arc::default(), Arc::default());
    let log = logged(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let ended = runtime.block_on(outcome(&process, &bounds, &job, &mut Answers::new(&alpn, &http)));
        assert!(matches!(ended, Outcome::Refused(Refusal { why: NoCertificate::Unavailable, .. })), "{ended:?}");
    });
    assert!(log.contains("ACME on demand: a.test: http://127.0.0.1:") && log.contains("does not respond"), "{log}");
}

#[test]
fn a_name_that_found_no_place_for_one_network_has_a_job_of_its_own_for_another() {
    let state = tempfile::tempdir().unwrap();
    let process = Arc::new(OnDemand::default());
    let mut jobs = process.jobs.lock().take().unwrap();
    let source = Source { names: Arc::new(names(state.path(), "http://127.0.0.1:9/")), process };
    let clients = [[192, 0, 2, 1], [192, 0, 2, 2]].map(IpAddr::from);
    let [mut first, mut second] = clients.map(|client| Box::pin(source.obtain("a.test", Some(client))));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(first.as_mut().poll(&mut cx).is_pending() && second.as_mut().poll(&mut cx).is_pending());

    // Both wait for the job of the first.
    let job = jobs.try_recv().unwrap();
    assert_eq!((job.client, jobs.is_empty()), (Some(clients[0]), true));
    job.outcome.send_replace(Some(Outcome::Full));
    drop(job);
    let refused = first.as_mut().poll(&mut cx);
    assert!(matches!(refused, Poll::Ready(Err(NoCertificate::Unavailable))), "{refused:?}");
    while jobs.is_empty() {
        assert!(second.as_mut().poll(&mut cx).is_pending());
    }
    let job = jobs.try_recv().unwrap();
    assert_eq!(job.client, Some(clients[1]));
    // The process stops.
    drop(job);
    assert!(matches!(second.as_mut().poll(&mut cx), Poll::Ready(Err(NoCertificate::Unavailable))));
}
