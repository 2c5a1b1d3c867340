//! `sealion trust`, on a machine whose store is its own: a mount namespace.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sealion_testkit::write_program;

use crate::support::{PROGRAM, Site, demand_root, tool};

/// Stands in for NSS' certutil: a database is a directory, a certificate in it a file.
const CERTUTIL: &str = r#"#!/bin/sh
echo "$@" >>"$HOME/calls"
do=$1; shift
while [ $# -gt 0 ]; do case $1 in
  -d) db=${2#sql:}; shift;; -n) name=$2; shift;; -i) file=$2; shift;; -t) shift;; esac; shift; done
case $do in
  -N) : >"$db/cert9.db";;
  -A) cp "$file" "$db/$name";;
  -L) test -e "$db/$name";;
  -D) rm "$db/$name";;
esac
"#;

/// Copies what `trust` changes, then runs a script. The hooks of other packages change more, and are left out.
const OWN_STORE: &str = r#"set -e
mkdir "$HOME/hooks"
! test -d /etc/ca-certificates/update.d || mount --bind "$HOME/hooks" /etc/ca-certificates/update.d
for directory in /etc/ssl /usr/local/share/ca-certificates; do
    mkdir -p "$HOME/system$directory"
    cp -a "$directory/." "$HOME/system$directory"
    mount --bind "$HOME/system$directory" "$directory"
done
"#;

/// A script's output, with a home directory and a store of the system of its own.
fn run(home: &Path, script: &str) -> Output {
    let path = format!("{}:{}", home.join("bin").display(), std::env::var("PATH").expect("PATH"));
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &format!("{OWN_STORE}{script}")]).env("PATH", path).env("HOME", home);
    command.env_remove("XDG_DATA_HOME").env_remove("SUDO_USER").env("SEALION", PROGRAM);
    command.output().expect("unshare is a tool of every Debian")
}

/// A profile of a browser, and the program that changes its store.
fn add_browser(home: &Path) -> PathBuf {
    let profile = home.join(".mozilla/firefox/one.default");
    fs::create_dir_all(&profile).expect("a profile");
    fs::write(profile.join("cert9.db"), "").expect("a database");
    fs::create_dir(home.join("bin")).expect("a directory");
    write_program(&home.join("bin/certutil"), CERTUTIL);
    profile
}

#[test]
fn what_is_trusted_needs_no_option_of_curl_until_it_is_removed() {
    demand_root("make mount namespaces");
    let site = Site::new();
    site.add("f", "seen");
    let home = tempfile::tempdir().expect("a directory");
    let home = home.path();
    let profile = add_browser(home);
    let root = site.root().display().to_string();
    let script = format!(
        r#"
serve() {{
    "$SEALION" serve {root} --listen 127.0.0.1:0 --access-log off >"$HOME/$1" 2>&1 &
    server=$!
    until port=$(sed -n 's/.*serving .* on https:..localhost:\([0-9]*\).*/\1/p' "$HOME/$1") && test "$port"; do sleep 0.05; done
}}
status() {{
    curl --silent --noproxy '*' --resolve evil.example:"$port":127.0.0.1 "$1:$port/f" >>"$HOME/bodies" && echo "$2 0" || echo "$2 $?"
}}
serve before; status https://localhost before; kill $server; wait $server
"$SEALION" trust >"$HOME/added"
"$SEALION" trust >"$HOME/again"
serve with; status https://localhost name; status https://127.0.0.1 address; status https://evil.example other; kill $server; wait $server
find "$HOME/.mozilla" "$HOME/.pki" -name 'sealion-*' | wc -l
"$SEALION" trust --remove >"$HOME/removed"
serve after; status https://localhost after; kill $server; wait $server
find "$HOME" -name 'sealion-*' | wc -l
"#
    );
    let output = run(home, &script);
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let read = |name: &str| fs::read_to_string(home.join(name)).unwrap_or_default();
    // 60: curl knows no issuer that it trusts. The store of Chromium was made where a Chromium is installed.
    let browsers = if read("calls").contains("-N") { 2 } else { 1 };
    let expected = format!("before 60\nname 0\naddress 0\nother 60\n{browsers}\nafter 60\n0\n");
    assert_eq!(said, expected, "{errors}\n{}\n{}\n{}", read("added"), read("calls"), read("removed"));
    assert_eq!(read("bodies"), "seenseen");
    assert!(
        read("added").contains("trusted by the system: /usr/local/share/ca-certificates/sealion-"),
        "{}",
        read("added")
    );
    assert!(read("added").contains(&format!("trusted by the browser of {}", profile.display())), "{}", read("added"));
    // A database that was made by the first is found by the second.
    let sorted = |text: String| text.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(sorted(read("added")), sorted(read("again")));
    assert!(read("with").contains("issued by the authority of `sealion trust`"), "{}", read("with"));
    assert!(!home.join(".local/share/sealion/authority.key").exists());
}

#[test]
fn the_authority_can_vouch_for_this_machine_alone() {
    demand_root("make mount namespaces");
    let home = tempfile::tempdir().expect("a directory");
    let output = run(home.path(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin \"$SEALION\" trust || true\n");
    let kept = home.path().join(".local/share/sealion");
    let key = fs::metadata(kept.join("authority.key")).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
    // The misuse of a stolen key.
    let issue = |names: &str| {
        let script = format!(
            "cd '{}' && openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout k -subj /CN=x -addext 'subjectAltName={names}' 2>/dev/null \
             | openssl x509 -req -CA authority.crt -CAkey authority.key -copy_extensions copyall -out c 2>/dev/null; openssl verify -CAfile authority.crt c 2>&1 || true",
            kept.display()
        );
        tool("sh", ["-c", &script])
    };
    for names in ["DNS:localhost", "DNS:app.localhost", "IP:127.0.0.1", "IP:127.1.2.3", "IP:::1"] {
        assert!(issue(names).ends_with("c: OK\n"), "{names}: {}", issue(names));
    }
    for names in ["DNS:example.org", "DNS:localhost.example", "IP:10.0.0.1", "IP:::2", "DNS:localhost,DNS:example.org"]
    {
        assert!(issue(names).contains("permitted subtree violation"), "{names}: {}", issue(names));
    }
}

#[test]
fn names_that_are_added_make_a_new_authority_for_all_of_them() {
    demand_root("make mount namespaces");
    let site = Site::new();
    site.add("f", "seen");
    let home = tempfile::tempdir().expect("a directory");
    add_browser(home.path());
    let root = site.root().display().to_string();
    let script = format!(
        r#"
"$SEALION" trust app.test >"$HOME/one"
"$SEALION" trust '*.dev.test' 10.0.0.7 app.test >"$HOME/two"
"$SEALION" trust app.test >"$HOME/three"
find /usr/local/share/ca-certificates -name 'sealion-*' | wc -l
"$SEALION" serve {root} --listen 127.0.0.1:0 --access-log off >"$HOME/log" 2>&1 &
server=$!
until port=$(sed -n 's/.*serving .* on https:..localhost:\([0-9]*\).*/\1/p' "$HOME/log") && test "$port"; do sleep 0.05; done
for name in app.test a.dev.test 10.0.0.7 localhost other.test; do
    curl --silent --noproxy '*' --output /dev/null --connect-to "$name:$port:127.0.0.1:$port" "https://$name:$port/f" && echo "$name 0" || echo "$name $?"
done
kill $server; wait $server
! "$SEALION" trust 8.8.8.8 2>"$HOME/refused"
"#
    );
    let output = run(home.path(), &script);
    let read = |name: &str| fs::read_to_string(home.path().join(name)).unwrap_or_default();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let expected = "1\napp.test 0\na.dev.test 0\n10.0.0.7 0\nlocalhost 0\nother.test 60\n";
    assert_eq!(said, expected, "{errors}\n{}\n{}\n{}", read("one"), read("two"), read("log"));
    assert!(read("refused").contains("not an address of a local network"), "{}", read("refused"));
    let names = read(".local/share/sealion/authority.names");
    assert_eq!(names, "app.test\n*.dev.test\n10.0.0.7\n");
}
