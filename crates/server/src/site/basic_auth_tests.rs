use super::*;

fn users(directory: &tempfile::TempDir, name: &str, lines: &[(&str, &str)]) -> PathBuf {
    let line = |(user, password): &(&str, &str)| {
        format!("{user}:{}\n", bcrypt::hash_with_result(password, 4).unwrap().format_for_version(bcrypt::Version::TwoY))
    };
    let path = directory.path().join(name);
    std::fs::write(&path, lines.iter().map(line).collect::<String>()).unwrap();
    path
}

fn config(path: &str, users: PathBuf) -> BasicAuthConfig {
    BasicAuthConfig { path: path.to_owned().into(), users: users.into(), ..BasicAuthConfig::default() }
}

fn basic(text: &str) -> Vec<u8> {
    format!("Basic {}", STANDARD.encode(text)).into_bytes()
}

/// The authenticated user, or the status of the refusal.
fn ask(auth: &BasicAuth, name: &str, authorization: Option<&[u8]>) -> Result<Option<String>, u16> {
    let verdict = match auth.check(name.as_bytes(), authorization, None) {
        Verdict::Verify(verification) => auth.check(name.as_bytes(), authorization, Some(verification.run())),
        verdict => verdict,
    };
    match verdict {
        Verdict::Pass(user) => Ok(user),
        Verdict::Refuse(response) => {
            let challenge = response.fields.extra.iter().next().map(|(name, value)| format!("{name}: {value}"));
            assert_eq!(challenge.as_deref(), Some("WWW-Authenticate: Basic realm=\"this site\", charset=\"UTF-8\""));
            Err(response.status.code())
        }
        Verdict::Verify(_) => panic!("verified twice"),
    }
}

#[test]
fn the_innermost_part_applies() {
    let directory = tempfile::tempdir().unwrap();
    let outer = config("/in/", users(&directory, "outer", &[("ada", "a:1"), ("Björn", "ü")]));
    let inner = config("/in/deep", users(&directory, "inner", &[("eve", "e")]));
    let auth = BasicAuth::build(&[outer, inner], "site.basic_auth", &mut Problems::of_arguments()).unwrap();
    for (name, credentials, expected) in [
        ("", None, Ok(None)),
        ("inside", None, Ok(None)),
        ("in", None, Err(401)),
        ("in/x", Some("ada:a:1"), Ok(Some("ada"))),
        ("in/x", Some("Björn:ü"), Ok(Some("Björn"))),
        ("in/x", Some("ada:a"), Err(401)),
        ("in/x", Some("ada:"), Err(401)),
        ("in/x", Some("nobody:a:1"), Err(401)),
        ("in/x", Some("ada"), Err(401)),
        ("in/deep/x", Some("ada:a:1"), Err(401)),
        ("in/deep/x", Some("eve:e"), Ok(Some("eve"))),
    ] {
        let authorization = credentials.map(basic);
        // The second time the credentials are known.
        for _ in 0..2 {
            let expected = expected.map(|user| user.map(str::to_owned));
            assert_eq!(ask(&auth, name, authorization.as_deref()), expected, "{name} {credentials:?}");
        }
    }
    for authorization in [&b"Bearer x"[..], b"Basic", b"Basic ", b"Basic !!!", b"basic", b""] {
        assert_eq!(ask(&auth, "in", Some(authorization)), Err(401), "{}", authorization.escape_ascii());
    }
    assert_eq!(ask(&auth, "in", Some(&basic("ada:a:1").to_ascii_lowercase())), Err(401));
}

#[test]
fn only_right_credentials_are_remembered() {
    let directory = tempfile::tempdir().unwrap();
    let config = config("/", users(&directory, "users", &[("ada", "right")]));
    let auth = BasicAuth::build(&[config], "site.basic_auth", &mut Problems::of_arguments()).unwrap();
    let check = |text: &str| auth.check(b"", Some(&basic(text)), None);
    let Verdict::Verify(verification) = check("ada:right") else { panic!("known before") };
    assert_eq!(verification.run(), Verified::Right);
    assert!(matches!(check("ada:right"), Verdict::Pass(Some(_))));
    let Verdict::Verify(verification) = check("ada:wrong") else { panic!("known before") };
    assert_eq!(verification.run(), Verified::Wrong);
    assert!(matches!(check("ada:wrong"), Verdict::Verify(_)));
}

#[test]
fn running_and_waiting_verifications_are_bounded() {
    let turns = Turns::new(2);
    let taken: Vec<_> = (0..2).map(|_| turns.wait().unwrap()).collect();
    std::thread::scope(|scope| {
        for _ in 0..WAITING_AT_MOST {
            scope.spawn(|| drop(turns.wait().expect("it may wait")));
        }
        while lock(&turns.counts).1 < WAITING_AT_MOST {
            std::thread::yield_now();
        }
        assert!(turns.wait().is_none(), "one too many");
        drop(taken);
    });
    assert_eq!(*lock(&turns.counts), (0, 0));
}

#[test]
fn configuration_errors() {
    let directory = tempfile::tempdir().unwrap();
    let md5 = directory.path().join("md5");
    std::fs::write(&md5, "ada:$apr1$x$y\n").unwrap();
    let good = users(&directory, "users", &[("ada", "a")]);
    let realm = BasicAuthConfig { realm: "a\"b".to_owned().into(), ..config("/", good) };
    for (config, words) in [
        (BasicAuthConfig::default(), "is missing: name the file of users"),
        (config("/", directory.path().join("none")), "cannot read"),
        (config("/", md5), ":1: ada: the password hash is MD5"),
        (realm, "write visible ASCII without quotes"),
    ] {
        let mut problems = Problems::of_arguments();
        BasicAuth::build(&[config], "site.basic_auth", &mut problems);
        assert!(problems.to_string().contains(words), "{problems}");
    }
}
