//! `sealion doctor` on whatever machine this is, with kernel TLS or without.

use sealion_ktls::{diag, probe};

use crate::support::PROGRAM;
use crate::support::doctor::{Doctor, refusal};

/// Above what any kernel gives out (proc(5), `pid_max`).
const NO_PID: &str = "4194305";

#[test]
fn text_json_and_exit_code_agree() {
    let doctor = Doctor::of_this_machine();
    assert_eq!(doctor.code, i32::from(!probe::probe().any_tx()), "{}", doctor.text);
    for topic in ["kernel", "tls layer", "openssl"] {
        doctor.finding(topic);
    }
    assert!(doctor.findings("settings").len() >= 2, "{}", doctor.text);
}

#[test]
fn a_missing_layer_is_bad_and_has_a_remedy() {
    let doctor = Doctor::of_this_machine();
    let layer = doctor.finding("tls layer");
    if probe::probe().ulp().is_ok() {
        assert_eq!((layer.state.as_str(), layer.remedy), ("good", None));
        assert_eq!(doctor.findings("seals").len(), 6);
    } else {
        assert_eq!(layer.state, "bad");
        assert!(layer.remedy.is_some_and(|remedy| !remedy.is_empty()), "{}", doctor.text);
        assert_eq!((doctor.code, doctor.findings("seals").len()), (1, 0), "there is nothing to try");
    }
}

#[test]
fn no_such_process_is_one_line() {
    let text = refusal(&["--pid", NO_PID]);
    if diag::permitted() {
        assert!(text.contains("no process 4194305"), "{text}");
    } else {
        assert!(text.contains("run it as root"), "{text}");
    }
}

#[test]
fn a_process_and_a_port_are_one_question_too_many() {
    let output = std::process::Command::new(PROGRAM).args(["doctor", "--pid", "1", "--port", "443"]).output();
    assert_eq!(output.expect("the program starts").status.code(), Some(2));
}
