//! Idioms that are not answered as nginx answers them.

/// Each with the reason. An idiom that agrees is removed, so that the list only gets shorter.
pub(super) const EXPECTED_TO_DIFFER: &[(&str, &str)] = &[
    ("acme-alias", "a name of a site with TLS has no site without it: the listener redirects with 308"),
    ("acme-beside-redirect", "a name of a site with TLS has no site without it: the listener redirects with 308"),
    ("alias-and-root", "a prefix with a slash has the path without it, which is redirected"),
    ("caret-before-regex", "a script that is sent as a file has the media type of PHP"),
    ("default-certificate-refuses", "unknown names get a handshake and are answered 403"),
    ("default-refuses", "the default without TLS redirects; 444 is answered 400"),
    ("directory-without-index", "by design: 404 where nginx answers 403"),
    ("dot-segments", "by design: 400, since no client library sends such paths"),
    ("error-page-redirect", "a path with the status of a redirect is lost"),
    ("forwarded-fields", "X-Forwarded-For of untrusted clients is dropped"),
    ("gzip-dynamic", "what applications answer is not compressed"),
    ("https-redirect", "the listener redirects with 308 and not 301"),
    ("if-scheme", "the listener redirects with 308 and not 301"),
    ("names-expression", "names by expression are not converted"),
    ("names-wildcard", "a wildcard at the end of a name is not converted"),
    ("nested-php", "by design: a script may read its path without the directory, where /x.php is refused"),
    ("rewrite-strip-slash", "`^/(.+)/$` is redirected to itself only in nginx"),
    ("rewrite-then-try", "a path that was rewritten before try_files has no file that is missing"),
    ("several-listens", "a name belongs to one site, whatever the listener"),
    ("www-redirect", "the listener redirects to its own host, with 308"),
    ("x-accel", "X-Accel-Redirect is passed to clients"),
];
