//! OCSP stapling, with `openssl ocsp` as the responder.

use std::fs;
use std::process::{Child, Command, Stdio};

use sealion_testkit::server::{Server, Signal};

use crate::support::port::free_port;
use crate::support::sites::Sites;
use crate::support::{messages, tool, wait_for_message, wait_until};

/// Makes an authority, an unrelated one, and a certificate of the authority for localhost that names the responder.
const MAKE: &str = r#"set -e
for name in ca other; do
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout $name.key -out $name.pem -subj /CN=$name -days 30 2>/dev/null
done
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out request -subj /CN=localhost 2>/dev/null
printf 'subjectAltName=DNS:localhost\nauthorityInfoAccess=OCSP;URI:http://127.0.0.1:%s/\n%s\n' "$1" "$2" >extensions
openssl x509 -req -in request -CA ca.pem -CAkey ca.key -set_serial 0x1234 -days 20 -extfile extensions -out own.pem 2>/dev/null
cat own.pem ca.pem >chain.pem
end=$(date -u -d '20 days' +%y%m%d%H%M%SZ)
printf 'V\t%s\t\t1234\tunknown\t/CN=localhost\n' "$end" >good
printf 'R\t%s\t%s\t1234\tunknown\t/CN=localhost\n' "$end" "$(date -u -d yesterday +%y%m%d%H%M%SZ)" >revoked
: >unknown
"#;

/// A site whose certificate names a responder on a port of its own.
struct Place {
    sites: Sites,
    port: u16,
}

impl Place {
    fn new(extension: &str) -> Self {
        let place = Self { sites: Sites::new(), port: free_port() };
        let directory = place.sites.path("");
        let script = format!("cd '{}'\n{MAKE}", directory.display());
        tool("sh", ["-c", &script, "sh", &place.port.to_string(), extension]);
        place
    }

    fn responder(&self, index: &str, signer: &str) -> Responder {
        let mut command = Command::new("openssl");
        command.args(["ocsp", "-ignore_err", "-nmin", "60", "-CA", "ca.pem", "-index", index, "-rsigner"]);
        command.arg(format!("{signer}.pem")).arg("-rkey").arg(format!("{signer}.key"));
        command.arg("-port").arg(self.port.to_string()).current_dir(self.sites.path(""));
        let log = self.sites.path("responder.log");
        let output = || Stdio::from(fs::File::create(&log).expect("a log"));
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output()).spawn();
        let responder = Responder(process.expect("openssl is needed"));
        // A connection without a request would keep it busy for ever.
        let is_ready = || fs::read_to_string(&log).is_ok_and(|log| log.contains("waiting for OCSP client connections"));
        wait_until("the responder listens", is_ready);
        responder
    }

    fn serve(&self, tls: &str) -> Server {
        let config = self.sites.config().table(tls);
        config.site("root", &[], "certificates = [{ cert = 'chain.pem', key = 'key.pem' }]").serve_from_user_space()
    }
}

/// Ends with this.
struct Responder(Child);

impl Drop for Responder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a client sees these words in the response, in both versions of TLS.
fn stapled(server: &Server, words: &str) -> [bool; 2] {
    ["-tls1_3", "-tls1_2"].map(|version| {
        let address = server.address();
        let script = format!(
            "openssl s_client -connect {address} -servername localhost -status {version} </dev/null 2>/dev/null"
        );
        let said = tool("sh", ["-c", &format!("{script} || true")]);
        assert!(said.contains("BEGIN CERTIFICATE"), "{said}");
        said.contains(words)
    })
}

const GOOD: &str = "Cert Status: good";

#[test]
fn a_response_is_fetched_stapled_and_kept_over_reloads() {
    let place = Place::new("tlsfeature=status_request");
    let server = place.serve("");
    wait_for_message(&server, "chain.pem: tells clients to require a stapled OCSP response (must-staple)");
    wait_for_message(&server, "chain.pem: no OCSP response: Connection refused");
    assert_eq!(stapled(&server, GOOD), [false, false]);
    drop(server);

    let responder = place.responder("good", "ca");
    let server = place.serve("");
    wait_for_message(&server, "chain.pem: OCSP response fetched, valid until");
    wait_until("it is stapled", || stapled(&server, GOOD) == [true, true]);
    drop(responder);
    server.signal(Signal::HUP);
    wait_for_message(&server, "configuration 1 is in use");
    assert_eq!(stapled(&server, GOOD), [true, true]);
    // The note of the start is not repeated.
    assert_eq!(messages(&server, "tells clients to require"), 1);
}

#[test]
fn only_a_response_of_the_issuer_that_says_good_is_stapled() {
    let place = Place::new("");
    for (index, signer, words) in [
        ("revoked", "ca", "the certificate is REVOKED: replace it"),
        ("unknown", "ca", "the responder does not know the certificate"),
        ("good", "other", "the response is not signed by the certificate's issuer"),
    ] {
        let _responder = place.responder(index, signer);
        let server = place.serve("");
        let line = wait_for_message(&server, words);
        assert!(line.contains("Next try at") && line.contains("none is stapled"), "{line}");
        assert_eq!(stapled(&server, "OCSP Response Status"), [false, false], "{index} {signer}");
        assert_eq!(messages(&server, "tells clients to require"), 0);
    }
}

#[test]
fn without_stapling_nobody_is_asked_and_without_an_issuer_nobody_can_be() {
    let place = Place::new("");
    let _responder = place.responder("good", "ca");
    let server = place.serve("[tls]\nocsp_stapling = false\n");
    assert_eq!(stapled(&server, GOOD), [false, false]);
    assert_eq!(messages(&server, "OCSP"), 0);
    drop(server);
    fs::copy(place.sites.path("own.pem"), place.sites.path("chain.pem")).expect("it is ours");
    let server = place.serve("");
    wait_for_message(&server, "no OCSP response can be stapled: its file has no issuer certificate after it");
}
