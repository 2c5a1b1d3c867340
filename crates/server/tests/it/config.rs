//! The configuration file: what is wrong with one is said with line, key and remedy; a changed one is taken over by SIGHUP, whole or not
//! at all; the reference says what the code reads.

use std::fs;
use std::path::Path;
use std::process::Command;

use sealion_testkit::http;
use sealion_testkit::server::{Server, Signal};

use crate::guards::add_users;
use crate::support::config::Config;
use crate::support::library::reference;
use crate::support::{PROGRAM, Site, curl, wait_for_message};

#[test]
fn check_says_what_is_wrong_with_file_line_key_and_remedy() {
    let site = Site::new();
    assert!(site.config("").check().status.success());
    for (rest, words) in [
        ("nonsense = 1\n", &["sealion.toml:6: site.nonsense: unknown field", "correct or remove"][..]),
        ("[limits]\ngrace = '5'\n", &["sealion.toml:7: limits.grace: ", "write for instance"]),
        (
            "[limits]\nrequest_timeout = '18446744073709551615s'\n",
            &["sealion.toml:7: limits.request_timeout: ", "87600h or less"],
        ),
        (
            "[limits]\nmax_discarded_body = 9223372036854775807\n",
            &["sealion.toml:7: limits.max_discarded_body: ", "1024TiB or less"],
        ),
        ("[server]\nfile_cache_age = '1000000h'\n", &["sealion.toml:7: server.file_cache_age: ", "87600h or less"]),
        ("[site.hsts]\nmax_age = '100000000000d'\n", &["max_age: ", "or less"]),
        ("[[site]]\nnames = ['b']\nroot = '/no/such'\n", &["sealion.toml:8: site.root: ", "/no/such", "create it"]),
        ("[[site]]\nroot = 'root'\n", &["site.names: ", "no request can reach it"]),
        ("[server]\ncalibration = 'gone.json'\n", &["server.calibration: there is no ", "/gone.json: create it"]),
        ("[metrics]\nlisten = '127.0.0.1:0'\ntoken_file = 'gone'\n", &["metrics.token_file: ", "/gone cannot be read"]),
        ("[privileges]\nuser = 'no-such-user'\n", &["there is no user no-such-user", "useradd"]),
        ("[server]\naccess_log = 'a.log'\n", &["server.access_log: ", "it is a table of its own: write [access_log]"]),
        ("[access_log]\nplace = 'a.log'\n", &["access_log.place: unknown field `place`, expected one of", "`to`"]),
        ("[tls]\nmin_version = 1.2\n", &["tls.min_version: ", "is a word in quotes: write \"1.2\" or \"1.3\""]),
        ("[cache]\ndirectories = ['c']\nsize = '0B'\n", &["cache.size: is 0", "remove [cache]"]),
        ("[privileges]\ngroup = 'root'\n", &["privileges.group: ", "name privileges.user too"]),
        (
            "[metrics]\nlisten = '[::1]:1'\n[[listen]]\naddress = '[::1]:1'\n",
            &["listen.address: [::1]:1 is configured twice"],
        ),
    ] {
        let output = site.config(rest).check();
        assert_eq!(output.status.code(), Some(1), "{rest}");
        let text = String::from_utf8(output.stderr).expect("text");
        for word in words {
            assert!(text.contains(word), "{word:?} is not in: {text}");
        }
    }
    let missing = Command::new(PROGRAM).args(["check", "--config", "/no/such.toml"]).output().expect("it starts");
    assert!(String::from_utf8_lossy(&missing.stderr).contains("/no/such.toml: cannot be read"));
}

#[test]
fn a_secret_beneath_a_root_is_refused_unless_no_request_can_reach_it() {
    let site = Site::new();
    for (file, is_refused) in [
        ("root/users", true),
        ("root/a/users", true),
        ("root/.users", false),
        ("users", false),
        ("root/.well-known/users", true),
    ] {
        match file.strip_prefix("root/") {
            Some(name) => drop(site.add(name, "")),
            None => fs::write(site.root().with_file_name(file), "").expect("it is written"),
        }
        let output = site.config(&format!("basic_auth = {{ realm = 'a', users = '{file}' }}")).check();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(text.contains("so that anybody could fetch it: move it"), is_refused, "{file}: {text}");
    }
}

#[test]
fn a_configuration_beneath_a_root_is_refused_unless_no_request_can_reach_it() {
    let site = Site::new();
    let directory = site.root();
    fs::create_dir(directory.join("parts")).expect("a directory");
    for (file, root, included, is_refused) in [
        ("sealion.toml", ".", None, true),
        (".sealion.toml", ".", None, false),
        ("sealion.toml", "parts", None, false),
        (".sealion.toml", ".", Some("parts/more.toml"), true),
        ("sealion.toml", "parts", Some("more.toml"), false),
    ] {
        let include = included.map_or_else(String::new, |file| format!("include = ['{file}']\n"));
        if let Some(included) = included {
            fs::write(directory.join(included), "[limits]\ngrace = '9s'\n").expect("it is written");
        }
        fs::write(directory.join(file), format!("{include}[[site]]\nroot = '{root}'\n")).expect("it is written");
        // Named as a user in that directory would.
        let output = Command::new(PROGRAM).args(["check", "--config", file]).current_dir(&directory).output();
        let text = String::from_utf8_lossy(&output.expect("it starts").stderr).into_owned();
        let words = format!("{} lies beneath the root of a site", included.unwrap_or(file));
        assert_eq!(text.contains(&words), is_refused, "{file} {included:?}: {text}");
        fs::remove_file(directory.join(file)).expect("it is ours");
    }
    let problems = site.config("").table("[metrics]\nlisten = '127.0.0.1:0'\ntoken_file = 'root/token'").problems();
    assert!(problems.contains("metrics.token_file: ") && problems.contains("anybody could fetch"), "{problems}");
}

#[test]
fn a_directory_of_the_server_beneath_a_root_is_refused_before_it_is_there() {
    let site = Site::new();
    for (keys, tables, words) in [
        ("", "[cache]\ndirectories = ['root/cache']", "cache.directories: "),
        (
            "names = ['a.test']\nacme = true",
            "[tls.acme]\nagree_to_terms = true\nstate = 'root/acme'",
            "tls.acme.state: ",
        ),
        ("", "[tls.acme]\nagree_to_terms = true\nstate = 'root/acme'", ""),
    ] {
        let output = site.config(keys).table(tables).check();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_refused = text.contains(words) && text.contains("so that anybody could fetch it: move it");
        assert_eq!((output.status.success(), is_refused), (words.is_empty(), !words.is_empty()), "{tables}: {text}");
    }
}

#[test]
fn rules_of_which_one_can_never_apply_are_refused() {
    let site = Site::new();
    let hash = bcrypt::hash_with_result("secret", 4).expect("a hash").format_for_version(bcrypt::Version::TwoY);
    fs::write(site.outside().join("users"), format!("ada:{hash}\n")).expect("a file");
    for (keys, words) in [
        (
            "route = [{ path = '= /a', redirect = '/b' }, { path = '= /a', redirect = '/c' }]",
            "site.route.path: is never reached: a route before it has the same path",
        ),
        (
            "route = [{ path = '~ ^/a', deny = true }, { path = '~ ^/a', match = { method = 'GET' } }]",
            "is never reached",
        ),
        (
            "route = [{ path = '/a/', basic_auth = { users = 'users' } }, { path = '/a/', basic_auth = { users = 'users' } }]",
            "is never reached",
        ),
        ("route = [{ path = '= /a', redirect = '/a' }]", "site.route.redirect: is a redirect loop"),
        ("route = [{ path = '= /a', redirect = '/a?b' }]", "is a redirect loop"),
        (
            "route = [{ path = '= /a', redirect = '/b/x' }, { path = '/b/', redirect = '/c' }, { path = '= /c', redirect = '/a' }]",
            "is a redirect loop",
        ),
        ("proxy = { to = 'http://a' }\nfallback = '/f'", "site.fallback: is never reached"),
    ] {
        let problems = site.config(keys).problems();
        assert!(problems.contains(words), "{words:?} is not in: {problems}");
    }
    site.add("f", "");
    for keys in [
        "route = [{ path = '= /a/c', redirect = '/d' }, { path = '~ ^/a(?:/(.*))?$', redirect = '/b/{1}' }]",
        "route = [{ path = '= /a', redirect = '/a/' }, { path = '~ ^/a', redirect = '/b' }]",
        "route = [{ path = '= /a', match = { method = 'GET' }, redirect = '/b' }, { path = '= /a', redirect = '/c' }]",
        "route = [{ path = '= /e', match = { query = { f = false } }, redirect = '/e?f=1' }]",
        "route = [{ path = '/api/', proxy = { to = 'http://a' } }]\nfallback = '/f'",
        "proxy = { to = 'http://a', files_first = true }\nfallback = '/f'",
    ] {
        let output = site.config(keys).check();
        assert!(output.status.success(), "{keys}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_check_warns_of_metrics_that_everybody_can_read() {
    let warns = |table: &str| {
        let output = Site::new().config("").table(table).check();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).contains("any client that reaches 0.0.0.0:9000 can read them")
    };
    assert!(warns("[metrics]\nlisten = '0.0.0.0:9000'"));
    assert!(!warns("[metrics]\nlisten = '127.0.0.1:9000'"));
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let text = Site::new()
        .config("")
        .site("/no/such", &[], "names = ['b', 'b']")
        .site("root", &[], "names = ['c d']")
        .problems();
    for word in ["/no/such", "not a host name"] {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}

#[test]
fn a_changed_file_is_taken_over_and_a_bad_one_is_not() {
    let site = Site::new();
    site.add("f", "one");
    let other = site.outside().join("other");
    fs::create_dir(&other).expect("a directory");
    fs::write(other.join("f"), "two").expect("a file");
    let server = site.config("").serve();
    let mut kept = site.connect(&server);
    let mut ask = |expected: &str| {
        assert_eq!(http::get(&mut kept, "/f").expect("the connection stays").body, expected.as_bytes());
        assert_eq!(curl::get(&site.pki, server.address(), "/f", &[]).body, expected.as_bytes());
    };
    ask("one");

    let with_root = |root: &str| Config::within(site.outside()).site(root, &[&site.pki], "");
    with_root("other").write();
    server.signal(Signal::HUP);
    wait_for_message(&server, "site[0].root: \"root\" becomes \"other\"");
    wait_for_message(&server, "configuration 1 is in use");
    ask("two");

    for (bad, message) in [
        (with_root("gone"), "cannot serve"),
        (with_root("other").table("[limits]\nno_such_key = 1"), "limits.no_such_key: unknown field"),
        (
            with_root("other").table("[server]\nworkers = 7"),
            "server.workers: nothing becomes 7: this change needs a new process",
        ),
    ] {
        bad.write();
        server.signal(Signal::HUP);
        wait_for_message(&server, message);
        ask("two");
    }
    with_root("other").write();
    server.signal(Signal::HUP);
    wait_for_message(&server, "configuration 2 is in use");
    ask("two");
}

/// Each is checked where it lies, and started with other addresses, because other processes have those.
#[test]
fn the_examples_are_checked_and_started() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let address = regex::Regex::new(r#"(address|listen) = "[^"]*:[0-9]+""#).expect("it is one");
    let mut started = 0;
    for example in fs::read_dir(examples.join("config")).expect("they are there") {
        let example = example.expect("it is there").path();
        if example.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let place = tempfile::tempdir().expect("a directory");
        let program = || {
            let mut command = Command::new(PROGRAM);
            command.current_dir(&place).env("XDG_DATA_HOME", place.path());
            command
        };
        let checked = program().args(["check", "--config"]).arg(&example).output().expect("it starts");
        assert!(checked.status.success(), "{}: {}", example.display(), String::from_utf8_lossy(&checked.stderr));

        let directory = place.path().join("config");
        fs::create_dir(&directory).expect("a directory");
        std::os::unix::fs::symlink(examples.join("site"), place.path().join("site")).expect("a link");
        fs::copy(examples.join("config/users.htpasswd"), directory.join("users.htpasswd")).expect("a copy");
        let text = fs::read_to_string(&example).expect("text");
        let file = directory.join("sealion.toml");
        fs::write(&file, &*address.replace_all(&text, r#"$1 = "127.0.0.1:0""#)).expect("room");
        let mut server = Server::start(PROGRAM.as_ref(), ["serve".as_ref(), "--config".as_ref(), file.as_os_str()]);
        server.signal(Signal::TERM);
        assert!(server.wait().success(), "{}", example.display());
        started += 1;
    }
    assert_eq!(started, 3);
}

#[test]
fn warnings_are_counted_and_strict_makes_them_errors() {
    use std::os::unix::fs::PermissionsExt;
    let site = Site::new();
    fs::set_permissions(site.pki.key_file(), fs::Permissions::from_mode(0o600)).expect("the mode is set");
    let check = |config: &crate::support::config::Config, options: &[&str]| {
        let output = Command::new(PROGRAM).args(["check", "--config"]).arg(config.write()).args(options).output();
        let output = output.expect("it starts");
        (output.status.code(), String::from_utf8(output.stdout).expect("text"))
    };
    let listen = "address = '127.0.0.1:8443'";
    let right = site.config("names = ['localhost']\n").listen(listen).listen("address = '127.0.0.1:8080'\ntls = false");
    for options in [&[][..], &["--strict"]] {
        let (code, text) = check(&right, options);
        assert_eq!(code, Some(0), "{text}");
        assert!(
            text.starts_with("HTTPS on 127.0.0.1:8443\nHTTP on 127.0.0.1:8080, redirecting to HTTPS on port 8443\n")
        );
        assert!(text.ends_with("\nOK\n"), "{text}");
    }
    let wrong_name = site.config("names = ['other.example']\n");
    let (code, text) = check(&wrong_name, &[]);
    assert!(code == Some(0) && text.ends_with("\nOK, 1 warning\n") && text.contains("but not other.example"), "{text}");
    let (code, text) = check(&wrong_name, &["--strict"]);
    assert!(code == Some(1) && text.ends_with("\nnot OK, 1 warning\n"), "{text}");
}

/// `SEALION_UPDATE=1 cargo test -p sealion --test it config::` writes the page.
#[test]
fn the_reference_is_what_the_code_reads() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let made = reference::markdown();
    if std::env::var_os("SEALION_UPDATE").is_some() {
        fs::write(page, &made).expect("the page is written");
    }
    for line in made.lines().filter(|line| line.starts_with('|')) {
        assert!(line.ends_with('|') && !line.contains("[default:"), "broken by a line break: {line}");
    }
    let kept = fs::read_to_string(page).unwrap_or_default();
    assert!(kept == made, "docs/configuration.md is not what the code says: write it anew with SEALION_UPDATE=1");
}

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");

/// Pages that begin with a whole configuration.
const EXAMPLES: [&str; 17] = [
    "errors.md",
    "files.md",
    "guards.md",
    "guides/cache.md",
    "guides/mirror.md",
    "guides/php.md",
    "guides/proxy.md",
    "guides/spa.md",
    "guides/static-site.md",
    "headers.md",
    "limits.md",
    "listeners.md",
    "listings.md",
    "migrate-from-apache.md",
    "migrate-from-caddy.md",
    "migrate-from-traefik.md",
    "routes.md",
];

/// Every configuration of these pages that begins with a listener, with paths of this machine.
#[test]
fn the_examples_of_the_pages_pass_the_check() {
    let site = Site::new();
    add_users(&site, "users", &["ada"]);
    let srv = site.outside().join("srv");
    for file in [
        "www/404.html",
        "www/index.html",
        "www/status/index.html",
        "www/public/index.php",
        "app/index.html",
        "app/static/a",
        "docs/a",
        "mirror/a",
        "blog/index.php",
        "icons/a.gif",
    ] {
        let path = srv.join(file);
        fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        fs::write(path, "content").expect("written");
    }
    let here = [
        ("/srv", srv.clone()),
        ("/usr/share/icons", srv.join("icons")),
        ("/etc/ssl/example.org.pem", site.pki.certificate_file().to_owned()),
        ("/etc/ssl/example.org.key", site.pki.key_file().to_owned()),
        ("/etc/sealion/users", site.outside().join("users")),
    ];
    let file = site.outside().join("example.toml");
    for page in EXAMPLES {
        let text = fs::read_to_string(Path::new(DOCS).join(page)).expect("a page");
        let mut examples = 0;
        for example in text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            if !example.starts_with("[[listen]]") {
                assert!(examples > 0, "{page} does not begin with a whole configuration");
                continue;
            }
            let quoted = |path: &Path| format!("\"{}", path.display());
            let example = here
                .iter()
                .fold(example.to_owned(), |text, (there, path)| text.replace(&format!("\"{there}"), &quoted(path)));
            fs::write(&file, &example).expect("written");
            let output = Command::new(PROGRAM).args(["check", "--config"]).arg(&file).output().expect("it starts");
            assert!(output.status.success(), "{page}: {}\n{example}", String::from_utf8_lossy(&output.stderr));
            examples += 1;
        }
        assert!(examples > 0, "{page} has no whole configuration");
    }
}
