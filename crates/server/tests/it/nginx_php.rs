//! Configurations with `fastcgi_pass`, served by nginx and, converted, by this server, both in front of php-fpm: which script each path runs.

use sealion_testkit::{Connector, Suite};

use super::nginx_corpus::{Asker, Corpus, Request};
use crate::support::fastcgi::PhpFpm;

/// The idioms of nginx' wiki and of WordPress.
const CONFIGURATION: &str = "
server {
    listen @A@ ssl;
    server_name a.example;
    root @ROOT@;
    index index.php index.html;
    location / { try_files $uri $uri/ /index.php?$args; }
    location /private/ { deny all; }
    location ~ [^/]\\.php(/|$) {
        try_files $fastcgi_script_name =404;
        fastcgi_split_path_info ^(.+?\\.php)(/.*)$;
        fastcgi_pass @PHP@;
        fastcgi_index index.php;
        fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
        fastcgi_param PATH_INFO $fastcgi_path_info;
        fastcgi_param QUERY_STRING $query_string;
        fastcgi_param REQUEST_METHOD $request_method;
        fastcgi_param CONTENT_TYPE $content_type;
        fastcgi_param CONTENT_LENGTH $content_length;
        fastcgi_param SCRIPT_NAME $fastcgi_script_name;
        fastcgi_param REQUEST_URI $request_uri;
        fastcgi_param APP_ENV test;
    }
}
server {
    listen @A@ ssl;
    server_name b.example;
    root @ROOT@;
    index index.php;
    location ~ \\.php$ {
        try_files $uri =404;
        fastcgi_pass @PHP@;
        fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
        fastcgi_param QUERY_STRING $query_string;
        fastcgi_param REQUEST_METHOD $request_method;
        fastcgi_param SCRIPT_NAME $fastcgi_script_name;
        fastcgi_param REQUEST_URI $request_uri;
    }
}
server {
    listen @A@ ssl;
    server_name c.example;
    root @ROOT@;
    location / { try_files $uri /index.php$is_args$args; }
    location ~ ^/index\\.php(/|$) {
        fastcgi_split_path_info ^(.+?\\.php)(/.*)$;
        fastcgi_pass @PHP@;
        fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
        fastcgi_param QUERY_STRING $query_string;
        fastcgi_param REQUEST_METHOD $request_method;
        fastcgi_param SCRIPT_NAME $fastcgi_script_name;
        fastcgi_param REQUEST_URI $request_uri;
    }
    location ~ \\.php$ { return 404; }
}
server {
    listen @A@ ssl;
    server_name d.example;
    root @ROOT@;
    index index.html index.php;
    location / { try_files $uri $uri/ /index.php?$args; }
    location ~ \\.php$ {
        try_files $uri =404;
        fastcgi_pass @PHP@;
        fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
        fastcgi_param QUERY_STRING $query_string;
        fastcgi_param REQUEST_METHOD $request_method;
        fastcgi_param SCRIPT_NAME $fastcgi_script_name;
        fastcgi_param REQUEST_URI $request_uri;
    }
}
";

const PHP: &str = "<?php echo 'ran ', basename(__FILE__), ' of ', basename(__DIR__), ' ', $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['REQUEST_URI'], ' ', \
                   $_SERVER['QUERY_STRING'];";

/// Paths of both hosts. The same scripts run as in nginx, no other file may run here, and no client gets a source.
const PATHS: [&str; 37] = [
    "/",
    "/index.php",
    "/index.php?a=b",
    "/x.php",
    "/x.php?a=%20",
    "/x.php/",
    "/x.php/in/fo",
    "/a/",
    "/a/index.php",
    "/a",
    "/both/",
    "/page/",
    "/index.php/in/fo",
    "/blog/post?x=1",
    "/style.css",
    "/none.php",
    "/none.php/x",
    "/private/",
    "/private/x.php",
    "/private/x.php/y",
    "/%70rivate/x.php",
    "/private//x.php",
    "/upload/x.jpg",
    "/upload/x.jpg/y.php",
    "/upload/x.jpg/.php",
    "/upload/x.jpg%00.php",
    "/upload/x.jpg%2fy.php",
    "/upload/x.jpg/x.php",
    "/x.PHP",
    "/x.php%20",
    "/x.php.",
    "/x.php~",
    "/%78.php",
    "//x.php",
    "/./x.php",
    "/a/../x.php",
    "/x.php;y",
];

/// A path without its slash goes to the front script instead of a redirect, a page goes before a script, and a page stays an index beside scripts alone.
const DIFFERENT: [(&str, &str); 4] =
    [("a.example", "/a"), ("a.example", "/both/"), ("b.example", "/both/"), ("b.example", "/page/")];

/// Paths of the host whose front script alone runs, at which nginx answers alike. At others, what it refuses may go to the front script here, and the
/// other way round.
const OF_FRONT: [&str; 9] = [
    "/",
    "/index.php",
    "/index.php?a=b",
    "/index.php/in/fo",
    "/blog/post?x=1",
    "/x.php",
    "/none.php",
    "/a/",
    "/a/index.php",
];

/// Paths of the host whose pages go before scripts.
const OF_INDEX: [&str; 5] = ["/", "/both/", "/page/", "/a/", "/blog/post?x=1"];

#[test]
fn the_same_scripts_run() {
    let corpus = Corpus::new();
    let root = corpus.directory.path().join("php");
    for name in ["index.php", "x.php", "a/index.php", "private/x.php", "upload/x.jpg"] {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("it is made");
        std::fs::write(path, PHP).expect("it is written");
    }
    // A directory with either index, and one with a page alone.
    for (name, content) in [("both/index.php", PHP), ("both/index.html", "page both"), ("page/index.html", "page")] {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("it is made");
        std::fs::write(path, content).expect("it is written");
    }
    std::fs::write(root.join("style.css"), "css").expect("it is written");
    let php = PhpFpm::start(corpus.directory.path());
    let text = CONFIGURATION.replace("@ROOT@", &root.display().to_string()).replace("@PHP@", &php.url());
    let both = corpus.serve_both("configuration", &text, CONFIGURATION);
    let connector = Connector::new(&corpus.pki, Suite::TLS13);
    let asker = |ports| Asker { ports, connector: &connector, kept: None };
    let (mut theirs, mut ours) = (asker(both.theirs), asker(both.ours));
    let (mut wrong, mut ran) = (Vec::new(), 0);
    for host in ["a.example", "b.example", "c.example", "d.example"] {
        for path in PATHS.into_iter().filter(|path| host != "d.example" || OF_INDEX.contains(path)) {
            let request = Request { address: "@A@", host, path, field: None };
            let read = |asker: &mut Asker<'_>| {
                let (status, content) = asker.ask(&request)?;
                Some((status, String::from_utf8_lossy(&content).into_owned()))
            };
            let (their, our) = (read(&mut theirs), read(&mut ours));
            let run = |answer: &Option<(u16, String)>| {
                let is_answer = |text: &str| text.starts_with("ran ") || text.starts_with("page");
                // REQUEST_URI has one slash at its beginning here.
                answer.as_ref().filter(|(_, text)| is_answer(text)).map(|(_, text)| text.replace(" //", " /"))
            };
            let has_source = our.as_ref().is_some_and(|(_, text)| text.contains("<?php"));
            // An image that holds PHP is a file: both send it.
            let is_image = path == "/upload/x.jpg";
            let is_refused = our.as_ref().is_none_or(|(status, _)| *status >= 400);
            // A path with dot segments, with an encoded slash or with NUL is refused here.
            // A denial that nginx has for a prefix alone holds for scripts too.
            let is_private = path.contains("rivate");
            let may_be_refused = is_private || path.contains("/.") || path.contains("%2f") || path.contains("%00");
            let is_front = run(&our).is_none_or(|text| text.starts_with("ran index.php of php "));
            let may_be_front = host == "c.example" && !OF_FRONT.contains(&path);
            let is_known = DIFFERENT.contains(&(host, path));
            let is_same =
                is_known || run(&their) == run(&our) || may_be_refused && is_refused || may_be_front && is_front;
            ran += usize::from(run(&our).is_some());
            if has_source && !is_image || !is_same {
                wrong.push(format!("{host}{path}: nginx {their:?}, here {our:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(ran >= 12, "{ran} ran");
}
