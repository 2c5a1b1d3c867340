use super::*;

fn users(directory: &tempfile::TempDir, name: &str, lines: &[(&str, &str)]) -> PathBuf {
    let line = |(user, password): &(&str, &str)| {
        format!("{user}:{}\n", bcrypt::hash_with_result(password, 4).unwrap().format_for_version(bcrypt::Version::TwoY))
    };
    let path = directory.path().join(name);
    std::fs::write(&path, lines.iter().map(line).collect::<String>()).unwrap();
    path
}

fn config(users: PathBuf) -> BasicAuthConfig {
    BasicAuthConfig { users: users.into(), ..BasicAuthConfig::default() }
}

fn build(config: &BasicAuthConfig) -> BasicAuth {
    config.build("site.basic_auth", &mut Problems::of_arguments()).unwrap()
}

fn basic(text: &str) -> Vec<u8> {
    format!("Basic {}", STANDARD.encode(text)).into_bytes()
}

/// The authenticated user, or the status of the refusal.
fn ask(auth: &BasicAuth, authorization: Option<&[u8]>) -> Result<Option<String>, u16> {
    let decision = match auth.check(authorization) {
        Verdict::Verify(verification) => verification.run(None),
        Verdict::Decided(decision) => decision,
    };
    match decision {
        Ok(user) => Ok(user.map(String::from)),
        Err(response) => {
            let challenge = response
                .fields
                .extra
                .iter()
                .next()
                .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value)));
            assert_eq!(challenge.as_deref(), Some("WWW-Authenticate: Basic realm=\"this site\", charset=\"UTF-8\""));
            Err(response.status.code())
        }
    }
}

#[test]
fn a_user_of_the_file_passes_with_the_password() {
    let directory = tempfile::tempdir().unwrap();
    let auth = build(&config(users(&directory, "users", &[("ada", "a:1"), ("Björn", "ü")])));
    for (credentials, expected) in [
        (None, Err(401)),
        (Some("ada:a:1"), Ok(Some("ada"))),
        (Some("Björn:ü"), Ok(Some("Björn"))),
        (Some("ada:a"), Err(401)),
        (Some("ada:"), Err(401)),
        (Some("nobody:a:1"), Err(401)),
        (Some("ada"), Err(401)),
    ] {
        let authorization = credentials.map(basic);
        // The second time the credentials are known.
        for _ in 0..2 {
            let expected = expected.map(|user| user.map(str::to_owned));
            assert_eq!(ask(&auth, authorization.as_deref()), expected, "{credentials:?}");
        }
    }
    for authorization in [&b"Bearer x"[..], b"Basic", b"Basic ", b"Basic !!!", b"basic", b""] {
        assert_eq!(ask(&auth, Some(authorization)), Err(401), "{}", authorization.escape_ascii());
    }
    assert_eq!(ask(&auth, Some(&basic("ada:a:1").to_ascii_lowercase())), Err(401));
}

#[test]
fn only_right_credentials_are_remembered() {
    let directory = tempfile::tempdir().unwrap();
    let auth = build(&config(users(&directory, "users", &[("ada", "right")])));
    let check = |text: &str| auth.check(Some(&basic(text)));
    let Verdict::Verify(verification) = check("ada:right") else { panic!("known before") };
    assert_eq!(verification.run(None).unwrap().as_deref(), Some("ada"));
    assert!(matches!(check("ada:right"), Verdict::Decided(Ok(Some(_)))));
    let Verdict::Verify(verification) = check("ada:wrong") else { panic!("known before") };
    assert_eq!(verification.run(None).unwrap_err().status, Status::UNAUTHORIZED);
    assert!(matches!(check("ada:wrong"), Verdict::Verify(_)));
}

#[test]
fn a_file_read_again_keeps_what_is_known_unless_it_changed() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(users(&directory, "users", &[("ada", "right")]));
    let built = || build(&config);
    let knows = |auth: &BasicAuth| matches!(auth.check(Some(&basic("ada:right"))), Verdict::Decided(Ok(Some(_))));
    let before = built();
    assert_eq!(ask(&before, Some(&basic("ada:right"))), Ok(Some("ada".to_owned())));
    let after = built();
    assert!(knows(&after), "the file is the same");
    users(&directory, "users", &[("ada", "right")]);
    assert!(!knows(&built()), "another hash, even of the same password");
    users(&directory, "users", &[("ada", "wrong")]);
    let changed = built();
    assert_eq!(ask(&changed, Some(&basic("ada:right"))), Err(401));
    assert!(knows(&after), "a request under the configuration before goes on");
}

#[test]
fn configuration_errors() {
    let directory = tempfile::tempdir().unwrap();
    let sha2 = directory.path().join("sha2");
    std::fs::write(&sha2, "ada:$6$x$y\n").unwrap();
    let good = users(&directory, "users", &[("ada", "a")]);
    let realm = BasicAuthConfig { realm: "a\"b".to_owned().into(), ..config(good) };
    for (config, words) in [
        (BasicAuthConfig::default(), "is missing: name the file of users"),
        (config(directory.path().join("none")), "cannot read"),
        (config(sha2), ":1: ada: the password hash is crypt's SHA-2"),
        (realm, "write visible ASCII without quotes"),
    ] {
        let mut problems = Problems::of_arguments();
        config.build("site.basic_auth", &mut problems);
        assert!(problems.to_string().contains(words), "{problems}");
    }
}
