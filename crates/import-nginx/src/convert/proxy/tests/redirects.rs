use super::*;

#[test]
fn redirects_are_rewritten_where_a_rule_does_what_nginx_does() {
    // The location, whether its rule rewrites, and the starts of what is named.
    let cases: [(&str, bool, &[&str]); 17] = [
        ("location / { proxy_pass http://app; }", true, &[]),
        ("location /a/ { proxy_pass http://app; proxy_redirect default; }", true, &[]),
        ("location / { proxy_pass http://app; proxy_redirect off; }", false, &[]),
        // The application knows the name that clients use.
        ("location / { proxy_pass http://app; proxy_set_header Host $host; }", false, &[]),
        ("location / { proxy_pass http://127.0.0.1:3000$request_uri; }", false, &[]),
        ("location / { proxy_pass http://unix:/run/app.sock; }", false, &[]),
        (
            "location / { proxy_pass http://app; proxy_set_header Host $host; proxy_redirect http://127.0.0.1:3000/ /; }",
            true,
            &[],
        ),
        (
            "location / { proxy_pass http://app; proxy_set_header Host $host; proxy_redirect http:// https://; }",
            true,
            &[],
        ),
        (
            "location / { proxy_pass http://app; proxy_set_header Host $host; proxy_redirect http://app/ /; }",
            false,
            &["proxy_redirect"],
        ),
        ("location / { proxy_pass http://app; proxy_cookie_domain 127.0.0.1 $host; }", true, &[]),
        (
            "location / { proxy_pass http://app; proxy_redirect off; proxy_cookie_domain 127.0.0.1 $host; }",
            false,
            &["proxy_cookie_domain"],
        ),
        ("location /a/ { proxy_pass http://app/; }", false, &["proxy_pass"]),
        ("location /a/ { proxy_pass http://app/; proxy_redirect / /a/; proxy_cookie_path / /a/; }", true, &[]),
        ("location /a/ { proxy_pass http://app/v1/; proxy_redirect /v1/ /a/; proxy_cookie_path /v1 /a; }", true, &[]),
        ("location /a/ { proxy_pass http://app/; proxy_redirect / /a/; }", true, &["proxy_redirect"]),
        (
            "location /a/ { proxy_pass http://app/; proxy_redirect off; proxy_cookie_path / /a/; }",
            false,
            &["proxy_cookie_path"],
        ),
        ("location /a/ { proxy_pass http://app/; proxy_redirect / /b/; }", false, &["proxy_redirect"]),
    ];
    for (location, expected, starts) in cases {
        let (site, named) = site(location);
        let [rule] = rules(&site)[..] else { panic!("{location}: {site} {named:#?}") };
        assert_eq!(rule.get("redirects").and_then(Value::as_str), expected.then_some("rewrite"), "{location}");
        assert_eq!(named.len(), starts.len(), "{location}: {named:#?}");
        for (line, start) in named.iter().zip(starts) {
            assert!(line.contains(&format!(": {start}")), "{location}: {line}");
        }
    }
}
